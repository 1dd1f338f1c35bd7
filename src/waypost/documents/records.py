"""Records of markdown skills and prompts, the ports and rules they are kept and shown by, and the requests for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from waypost.capabilities.context import Context
from waypost.documents.uris import MAX_ARGUMENTS, quoted, refused, skill_uri
from waypost.workers.functions import Call

Data: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["skills", "prompts"]
Op: TypeAlias = Literal["register", "unregister"]
Asker: TypeAlias = Call | Context | None
"""The origin of a request: a call of a worker, a request of a client, or None for the hub itself."""


class DocumentStore(Protocol):
    """Stores skills and prompts; every failure is a WaypostError."""

    async def get(self, kind: Kind, key: str) -> Data | None:
        """Return the value of a key."""

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Write a value over any earlier one."""

    async def remove(self, kind: Kind, key: str) -> bool:
        """Remove a key; return whether it existed."""

    async def all(self, kind: Kind) -> list[Data]:
        """Return all values, in any order."""

    async def revision(self) -> object:
        """Return a value that differs after any change; None where the store cannot say."""


class Trigger(Protocol):
    """Runs a function of a worker; raises InvocationFailed if it fails."""

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """Return the function's answer; a given namespace is searched first, then the default one."""


class SourceDocument(NamedTuple):
    """A skill that a source has, under an id such as `pdf` or `pdf/references/forms`."""

    id: str
    body: str
    owner: str
    """Of a folder: `folder:` and its path."""
    uri: str
    """Its URI in the source; rules about that URI apply to the skill too."""


class Source(Protocol):
    """A read-only origin of skills, such as folders."""

    def documents(self) -> Iterable[SourceDocument]:
        """Return the current documents."""


Changed: TypeAlias = Callable[[Kind, Op, str, Sequence[str]], None]
"""Called after every change was written and before it is answered, with the names that rules match; must not block."""


class Updated(Protocol):
    """Notifies the subscribers of a URI that its content changed."""

    def __call__(self, uri: str, also: Sequence[str] = (), /) -> None:
        """Notify subscribers that may see the document under all of its URIs."""


PublicationAction: TypeAlias = Literal["document.published", "document.removed"]


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of access; by default every caller sees and reads everything."""

    shows: Callable[[str, Asker], bool] = lambda name, by: True
    """Returns whether a caller sees a name in lists."""
    admit: Callable[[Kind, str, Asker], None] = lambda kind, name, by: None
    """Raises if a caller may not read a URI or get a prompt; requests of clients were checked before."""
    record: Callable[[PublicationAction, str, Call], None] = lambda action, name, call: None
    """Records in the audit that a worker or a client changed a document."""

    def shows_all(self, names: Iterable[str], by: Asker) -> bool:
        """Return whether a caller sees a document with these names; the hub itself sees everything."""
        return by is None or all(self.shows(name, by) for name in names)


OPERATOR: Final = "operator"
"""The owner of what operators publish; an operator may change every document."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of documents; by default documents have none."""

    owner_of: Callable[[Call], str] = lambda call: ""
    """Returns the owner that a call acts as: `worker:<name>`, `operator`, or an empty text if unknown."""
    is_connected: Callable[[str], bool] = lambda owner: False
    share: bool = False
    """Whether workers may change documents of other workers."""
    namespace_of: Callable[[Call], str | None] = lambda call: None
    """Returns the namespace of the calling worker's functions; None for the default one."""
    is_proven: Callable[[str], bool] = lambda owner: False
    """Whether an owner has a token of its own: what it published stays its own while it is away."""

    def check(self, noun: str, record: Record | None, owner: str) -> None:
        """Refuse a change of a document that belongs to another connected worker."""
        if self.share or record is None or not record.owner or owner in (record.owner, OPERATOR):
            return
        # Without a token a name proves nothing, so that what its worker published can be replaced while it is away.
        if not self._is_stale(record) or self.is_proven(record.owner):
            raise refused(
                f"The {noun} {quoted(record.key)} belongs to {record.owner}; "
                f"only its owner or an operator may change or remove it"
            )

    def describe(self, record: Record) -> Data:
        """Return what a listing shows of the owner of a record."""
        return {"owner": record.owner, "stale": self._is_stale(record)}

    def _is_stale(self, record: Record) -> bool:
        if not record.owner or record.owner == OPERATOR or record.from_source:
            return False
        return not self.is_connected(record.owner)


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


def read_request(payload: Any, schema: Data, definitions: Data | None = None) -> Data:
    """Return the fields that the schema of a request declares; others are ignored."""
    definitions = schema.get("definitions", definitions)
    known, required = schema["properties"], schema.get("required", ())
    if not isinstance(payload, dict):
        # The schema of an argument is the only one without a title.
        raise _unexpected(payload, f"struct {schema.get('title', 'PromptArgument')}")
    given = {name: _read(value, known[name], definitions) for name, value in payload.items() if name in known}
    for name, field in known.items():
        if name not in given:
            if name in required:
                raise refused(f"missing field `{name}`")
            given[name] = field.get("default")
    return given


def _read(value: Any, schema: Data, definitions: Data | None) -> Any:
    if definitions is not None and "$ref" in schema:
        return Argument(**read_request(value, definitions[schema["$ref"].rpartition("/")[2]]))
    kinds = schema.get("type")
    kind = kinds if isinstance(kinds, str) or kinds is None else next(one for one in kinds if one != "null")
    # Where null is valid too, `kinds` is a list.
    if kind is None or (value is None and kind != kinds):
        return value
    python, expected = _KINDS[kind]
    if not isinstance(value, python):
        raise _unexpected(value, expected)
    if kind != "array":
        return value
    # However many a request holds, they are refused where they are used: no time is spent on each of them before.
    if schema["items"].get("type") == "string" and (len(value) > MAX_TEXTS or set(map(type, value)) <= {str}):
        return value
    return [_read(item, schema["items"], definitions) for item in value[: MAX_ARGUMENTS + 1]]


MAX_TEXTS: Final = 10_000
"""The most that `limits.maxFetchUris` can be: a longer list is refused for its length, whatever it holds."""
_KINDS: Final[dict[str, tuple[type[Any], str]]] = {
    "string": (str, "a string"),
    "boolean": (bool, "a boolean"),
    "array": (list, "a sequence"),
}
"""Kinds of JSON Schema as Python types, and as errors name them."""


def _unexpected(value: Any, expected: str) -> Exception:
    # The words are those of the serde errors that the original registry answers.
    return refused(f"invalid type: {_describe_value(value)}, expected {expected}")


def _describe_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        # Before `int`, of which `bool` is a subclass.
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


def _object(title: str, properties: Data | None = None, **more: Any) -> Data:
    """Return the schema of an object; what has no default is required."""
    schema: Data = {**_DRAFT, **more, "title": title, "type": "object"}
    if properties is not None:
        schema["properties"] = properties
    if required := sorted(name for name, one in (properties or {}).items() if "default" not in one):
        schema["required"] = required
    return schema


def _listing(title: str, noun: str, row: str, properties: Data) -> Data:
    rows = {"items": {"$ref": f"#/definitions/{row}"}, "type": "array"}
    definition = {"properties": properties, "required": sorted(properties), "type": "object"}
    return _object(title, {noun: rows}, definitions={row: definition})


EMPTY: Final = _object("EmptyInput")
ANY: Final[Data] = {**_DRAFT, "title": "AnyValue"}

REGISTER_SKILL: Final = _object(
    "RegisterSkillInput",
    {
        "id": _describe("Unique skill id (lowercase ASCII, kebab/underscore, max 64 chars)."),
        "skill": _describe("Markdown body served at iii://{id}."),
    },
)
SKILL_REGISTERED: Final = _object("RegisterSkillOutput", {"id": _TEXT, "registered_at": _TEXT})
UNREGISTER_SKILL: Final = _object("UnregisterSkillInput", {"id": _TEXT})
SKILL_UNREGISTERED: Final = _object("UnregisterSkillOutput", {"id": _TEXT, "removed": {"type": "boolean"}})
LIST_SKILLS: Final = _object("ListSkillsInput")
SKILLS: Final = _listing(
    "ListSkillsOutput", "skills", "SkillEntry", {"bytes": _COUNT, "id": _TEXT, "registered_at": _TEXT}
)
READ: Final = _object("ReadResourceInput", {"uri": _TEXT})
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
        "name": _describe("Unique prompt name (lowercase ASCII, kebab/underscore, max 64 chars)."),
        "description": _describe("Free-text description shown in the client's prompt picker."),
        "function_id": _describe("Handler function called on prompts/get with the supplied arguments."),
        "arguments": {"default": [], "items": {"$ref": "#/definitions/PromptArgument"}, "type": "array"},
    },
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
PROMPT_REGISTERED: Final = _object("RegisterPromptOutput", {"name": _TEXT, "registered_at": _TEXT})
UNREGISTER_PROMPT: Final = _object("UnregisterPromptInput", {"name": _TEXT})
PROMPT_UNREGISTERED: Final = _object("UnregisterPromptOutput", {"name": _TEXT, "removed": {"type": "boolean"}})
LIST_PROMPTS: Final = _object("ListPromptsInput")
PROMPTS: Final = _listing(
    "ListPromptsOutput",
    "prompts",
    "PromptEntry",
    {"arguments": _COUNT, "function_id": _TEXT, "name": _TEXT, "registered_at": _TEXT},
)
GET_PROMPT: Final = _object("PromptGetInput", {"arguments": {"default": None}, "name": _TEXT})
