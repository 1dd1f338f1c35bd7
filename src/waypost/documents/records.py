"""Records of markdown skills and prompts, the requests that register them, and their JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from waypost.documents.ports import Data, quoted, refused
from waypost.documents.uris import skill_uri


class Skill(msgspec.Struct, frozen=True):
    """A markdown document under an id."""

    id: str
    skill: str
    registered_at: str
    owner: str | None = None
    from_source: bool = False
    """Whether it comes from a source and is not stored."""
    source_uri: str = ""
    """Its URI in that source."""

    @property
    def key(self) -> str:
        """The key in the store."""
        return self.id

    @property
    def names(self) -> tuple[str, ...]:
        """The names that rules match."""
        uri = skill_uri(self.id)
        return (uri, self.source_uri) if self.source_uri else (uri,)


class Argument(msgspec.Struct, frozen=True):
    """One argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """A slash command, and the function that renders it."""

    name: str
    description: str
    arguments: list[Argument]
    function_id: str
    registered_at: str
    owner: str | None = None
    from_source: bool = False
    namespace: str | None = None
    """The namespace of the worker that registered it, if it is not the default one."""

    @property
    def key(self) -> str:
        """The key in the store."""
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names that rules match."""
        return (self.name,)


Record = Skill | Prompt
R = TypeVar("R", Skill, Prompt)


def from_stored(data: object, kind: type[R]) -> R | None:
    """Return the record in a stored value; None if it is not valid."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        return None


def list_stored(rows: Iterable[object], kind: type[R]) -> list[R]:
    """Return the valid records among stored values, sorted by id or name."""
    found = (from_stored(row, kind) for row in rows)
    return sorted((record for record in found if record is not None), key=lambda record: record.key)


def to_stored(record: Record) -> Data:
    """Return the stored form of a record."""
    written: Data = msgspec.to_builtins(record)
    for name in ("from_source", "source_uri"):
        written.pop(name, None)
    return {name: value for name, value in written.items() if value is not None}


def now() -> str:
    """Return the current time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


REQUIRED: Final = object()
Read: TypeAlias = Callable[[Any], Any]


class Field(NamedTuple):
    """One field of a request: its reader, and its default."""

    read: Read
    default: Any = REQUIRED


def fields(payload: Any, title: str, known: Mapping[str, Field]) -> Data:
    """Return the known fields of a request; others are ignored."""
    if not isinstance(payload, dict):
        raise _unexpected(payload, f"struct {title}")
    given = {name: known[name].read(value) for name, value in payload.items() if name in known}
    for name, field in known.items():
        if name not in given:
            if field.default is REQUIRED:
                raise refused(f"missing field `{name}`")
            given[name] = field.default
    return given


def text(value: Any) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise _unexpected(value, "a string")
    return value


def optional(read: Read) -> Read:
    """Return a reader that also accepts null."""
    return lambda value: None if value is None else read(value)


def texts(value: Any) -> list[str]:
    """Read a list of strings."""
    return [text(item) for item in _sequence(value)]


def anything(value: Any) -> Any:
    """Read any value."""
    return value


def arguments(value: Any) -> list[Argument]:
    """Read the arguments of a prompt."""
    return [Argument(**fields(item, "PromptArgument", _ARGUMENT)) for item in _sequence(value)]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unexpected(value, "a boolean")
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _unexpected(value, "a sequence")
    return value


_ARGUMENT: Final = {"name": Field(text), "description": Field(optional(text), None), "required": Field(_boolean, False)}


def _unexpected(value: Any, expected: str) -> Exception:
    # The words are those of the serde errors that the original registry answers.
    return refused(f"invalid type: {_describe_value(value)}, expected {expected}")


def _describe_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f"string {quoted(value)}"
        case list():
            return "sequence"
        case _:
            return "map"


_DRAFT: Final = {"$schema": "http://json-schema.org/draft-07/schema#"}
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"format": "uint", "minimum": 0, "type": "integer"}


def _describe(text: str, **schema: Any) -> Data:
    return {"description": text, **(schema or _TEXT)}


def _object(title: str, properties: Data | None = None, required: tuple[str, ...] = (), **more: Any) -> Data:
    schema: Data = {**_DRAFT, **more, "title": title, "type": "object"}
    if properties is not None:
        schema["properties"] = properties
    if required:
        schema["required"] = list(required)
    return schema


def _listing(title: str, noun: str, row: str, properties: Data) -> Data:
    rows = {"items": {"$ref": f"#/definitions/{row}"}, "type": "array"}
    definition = {"properties": properties, "required": sorted(properties), "type": "object"}
    return _object(title, {noun: rows}, (noun,), definitions={row: definition})


EMPTY: Final = _object("EmptyInput")
ANY: Final[Data] = {**_DRAFT, "title": "AnyValue"}

REGISTER_SKILL: Final = _object(
    "RegisterSkillInput",
    {
        "id": _describe("Unique skill id (lowercase ASCII, kebab/underscore, max 64 chars)."),
        "skill": _describe("Markdown body served at iii://{id}."),
    },
    ("id", "skill"),
)
SKILL_REGISTERED: Final = _object("RegisterSkillOutput", {"id": _TEXT, "registered_at": _TEXT}, ("id", "registered_at"))
UNREGISTER_SKILL: Final = _object("UnregisterSkillInput", {"id": _TEXT}, ("id",))
SKILL_UNREGISTERED: Final = _object(
    "UnregisterSkillOutput", {"id": _TEXT, "removed": {"type": "boolean"}}, ("id", "removed")
)
LIST_SKILLS: Final = _object("ListSkillsInput")
SKILLS: Final = _listing(
    "ListSkillsOutput", "skills", "SkillEntry", {"bytes": _COUNT, "id": _TEXT, "registered_at": _TEXT}
)
READ: Final = _object("ReadResourceInput", {"uri": _TEXT}, ("uri",))
FETCH: Final = _object(
    "FetchSkillInput",
    {
        "uri": _describe(
            'A single iii:// URI to read. Must start with "iii://".', default=None, type=["string", "null"]
        ),
        "uris": _describe(
            "Multiple iii:// URIs to read and concatenate into one response.",
            default=None,
            items=_TEXT,
            type=["array", "null"],
        ),
    },
)
FETCHED: Final[Data] = {**_DRAFT, "title": "String", "type": "string"}

REGISTER_PROMPT: Final = _object(
    "RegisterPromptInput",
    {
        "arguments": {"default": [], "items": {"$ref": "#/definitions/PromptArgument"}, "type": "array"},
        "description": _describe("Free-text description shown in the client's prompt picker."),
        "function_id": _describe("Handler function called on prompts/get with the supplied arguments."),
        "name": _describe("Unique prompt name (lowercase ASCII, kebab/underscore, max 64 chars)."),
    },
    ("description", "function_id", "name"),
    definitions={
        "PromptArgument": {
            "properties": {
                "description": {"type": ["string", "null"]},
                "name": _TEXT,
                "required": {"default": False, "type": "boolean"},
            },
            "required": ["name"],
            "type": "object",
        }
    },
)
PROMPT_REGISTERED: Final = _object(
    "RegisterPromptOutput", {"name": _TEXT, "registered_at": _TEXT}, ("name", "registered_at")
)
UNREGISTER_PROMPT: Final = _object("UnregisterPromptInput", {"name": _TEXT}, ("name",))
PROMPT_UNREGISTERED: Final = _object(
    "UnregisterPromptOutput", {"name": _TEXT, "removed": {"type": "boolean"}}, ("name", "removed")
)
LIST_PROMPTS: Final = _object("ListPromptsInput")
PROMPTS: Final = _listing(
    "ListPromptsOutput",
    "prompts",
    "PromptEntry",
    {"arguments": _COUNT, "function_id": _TEXT, "name": _TEXT, "registered_at": _TEXT},
)
GET_PROMPT: Final = _object("PromptGetInput", {"arguments": {"default": None}, "name": _TEXT}, ("name",))
