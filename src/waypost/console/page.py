"""What a page is: its path and title, its template, the data it shows and the actions on it.

A page reads and acts only through `view.api`, the HTTP API in the same process as the person who is signed in. So the
API's check of roles, its policies and its audit apply to every page and action, and there is no second way in.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import escape

from waypost.api.api import VIA_HEADER
from waypost.api.routing import PREFIX, Role, match_segments, may_act_as
from waypost.capabilities.principals import Principal
from waypost.capabilities.schemas.graph import follow_reference
from waypost.errors import WaypostError
from waypost.transports.http.app import OperatorAnswer, OperatorRequest

ROOT: Final = "/console/"
Answer = Callable[[OperatorRequest], Awaitable[OperatorAnswer]]


class Refused(WaypostError):
    """The API refused a request; the page shows its sentence."""

    def __init__(self, message: str, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ApiCaller:
    """Calls the HTTP API in process, as one principal."""

    def __init__(self, answer: Answer, principal: Principal, address: str = "") -> None:
        self._answer = answer
        self._principal = principal
        self._address = address

    async def get(self, path: str, **query: Any) -> Any:
        """The answer to a GET; parameters that are None or empty are left out. Raises `Refused`."""
        return await self._request(
            "GET", path, {name: value for name, value in query.items() if value not in (None, "")}
        )

    async def post(self, path: str, body: Any = None) -> Any:
        """The answer to a POST; raises `Refused`."""
        return await self._request("POST", path, body=body)

    async def delete(self, path: str, **query: Any) -> Any:
        """The answer to a DELETE; raises `Refused`."""
        return await self._request("DELETE", path, query)

    async def send(self, method: str, path: str, query: bytes = b"", body: bytes = b"") -> OperatorAnswer:
        """The answer to a request as the API gives it."""
        whole = PREFIX + path
        scope = {
            "method": method,
            "path": whole,
            "raw_path": whole.encode("ascii", "replace"),
            "query_string": query,
            "client": (self._address, 0),
        }
        return await self._answer(OperatorRequest(scope, whole, {VIA_HEADER: b"console"}, self._principal, body))

    async def _request(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = await self.send(method, path, urlencode(query or {}).encode(), sent)
        said = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            raise Refused(said["error"], answer.status, said.get("code", ""))
        return said


def segment(text: str) -> str:
    """A name as one segment of a path of the API."""
    return quote(text, safe="")


@dataclass
class View:
    """One request of a person to a page."""

    api: ApiCaller
    principal: Principal
    query: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of the page's path."""
    form: Mapping[str, str] = field(default_factory=dict)
    """What a form sent; an action that fails leaves it there, so that the page shows it again."""

    def can(self, role: Role) -> bool:
        """Whether the person may do what a role may; only for what to show, the API decides."""
        return may_act_as(role, self.principal)


class Done(msgspec.Struct, frozen=True):
    """The end of an action: a sentence for the person, and more for the template."""

    message: str
    data: dict[str, Any] = {}


Load = Callable[[View], Awaitable[dict[str, Any]]]
"""Returns what the template shows; `http_status` is the status of the answer where it is not 200."""
Act = Callable[[View], Awaitable[Done]]
"""Does one thing by one call of the API."""


async def _load_nothing(view: View) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Page:
    """One page; the console finds it by its path, and lists it in its navigation if it has a `section`."""

    path: str
    """Below `/console/`; a segment in braces is a variable, such as `instances/{id}`."""
    title: str
    template: str | Path
    """A template of the console by name, or a file anywhere."""
    load: Load = _load_nothing
    actions: Mapping[str, Act] = field(default_factory=dict)
    """By the value of the button `action` that submits a form."""
    section: str = ""
    """The heading of the navigation under which it is listed."""
    icon: str = "page"
    """The name of a symbol in `static/icons.svg`."""
    shortcut: str = ""
    """The key that opens it after `g`."""
    live: Sequence[str] = ()
    """The kinds of changes after which an open page is loaded again."""
    every: int = 0
    """After how many seconds an open page is loaded again, for what changes without an announcement; 0 is never."""

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The variables in a path that is one of this page, else None."""
        return match_segments(self.path.split("/"), segments)

    @property
    def url(self) -> str:
        """Where a page without variables is."""
        return ROOT + self.path


MAX_FIELDS: Final = 60
FIELD_PREFIX: Final = "arg."
"""Before the names of fields, so that no property is confused with a field of the console."""
_MAX_REFERENCES: Final = 10
_MAX_EXAMPLE_DEPTH: Final = 3
_MAX_EXAMPLE_NAMES: Final = 8
_MAX_EXAMPLE_CHARACTERS: Final = 4_000
"""How much of a schema is shown as examples: levels, names of each, and characters of all fields."""
MAX_FIELDS_BYTES: Final = 20_000
"""How much of the names, descriptions and choices of all fields is shown, as HTML; else there is one field for all."""
_FIELD_BYTES: Final = 200
"""The markup around one field."""
_DESCRIPTION_CHARACTERS: Final = (600, 120, 0)
"""How much of each description is shown: the first of these with which all fields fit."""
MAX_TYPED_BYTES: Final = 16_000
"""How much of what was typed is shown again, as HTML."""
_EXAMPLES: Final = {"string": "", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}
WHOLE: Final = "arguments"
"""The field with all arguments as JSON, for a schema that has no properties to make fields of."""
Input = Literal["text", "number", "integer", "boolean", "choice", "json"]


class InvalidForm(WaypostError):
    """What was typed is not a value of the field's type."""


class Field(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    label: str
    input: Input
    value: str = ""
    is_required: bool = False
    description: str = ""
    choices: tuple[str, ...] = ()
    is_long: bool = False
    example: str = ""
    """The shape of a value that is typed as JSON."""


def make_fields(schema: Any, form: Mapping[str, str] | None = None) -> list[Field]:
    """The fields for the properties of an object schema, with what was typed before or the defaults."""
    typed = _drop_large(form or {})
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and 0 < len(properties) <= MAX_FIELDS:
        fields = _make_fields(properties, schema, typed)
        for most in _DESCRIPTION_CHARACTERS:
            shortened = [msgspec.structs.replace(one, description=_cut(one.description, most)) for one in fields]
            if sum(map(_count_bytes, shortened)) <= MAX_FIELDS_BYTES:
                return shortened
    whole = typed.get(WHOLE, "{}")
    return [Field(WHOLE, "Arguments", "json", whole, description="A JSON object.", is_long=True)]


def _count_bytes(field: Field) -> int:
    """About how many bytes a field takes as HTML without its value, so that what was typed does not change its form."""
    return _FIELD_BYTES + len("".join(map(escape, (field.label, field.description, *field.choices))).encode())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…" if most else ""


def _make_fields(properties: dict[str, Any], schema: dict[str, Any], typed: Mapping[str, str]) -> list[Field]:
    needed = schema.get("required") or ()
    fields, left = [], _MAX_EXAMPLE_CHARACTERS
    for name, one in properties.items():
        resolved = _resolve(one, schema)
        example = json.dumps(_make_example(resolved, schema), indent=2) if _input_of(resolved) == "json" else "null"
        example = "" if example == "null" or len(example) > left else example
        left -= len(example)
        fields.append(_make_field(name, resolved, example, name in needed, typed))
    return fields


def _drop_large(typed: Mapping[str, str]) -> Mapping[str, str]:
    """What was typed, as far as it fits into a page; a field whose text does not fit is empty again."""
    left, kept = MAX_TYPED_BYTES, {}
    for name, text in sorted(typed.items(), key=lambda item: len(item[1])):
        left -= len(escape(text).encode("utf-8", "replace"))
        kept[name] = text if left >= 0 else ""
    return kept


def _make_field(name: str, schema: dict[str, Any], example: str, is_required: bool, typed: Mapping[str, str]) -> Field:
    kind, default = _input_of(schema), schema.get("default")
    given = typed.get(FIELD_PREFIX + name)
    if given is None and default is None:
        # A required object or list is there to be filled in; an optional one is only hinted at, since it would be sent.
        given = example if is_required else ""
    elif given is None:
        given = default if isinstance(default, str) and kind != "json" else json.dumps(default)
    return Field(
        FIELD_PREFIX + name,
        str(schema.get("title") or name),
        kind,
        given,
        is_required,
        str(schema.get("description") or ""),
        tuple(one if isinstance(one, str) else json.dumps(one) for one in schema.get("enum") or ()),
        kind == "json" or schema.get("maxLength", 0) > 200,
        "" if given else example,
    )


def _resolve(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """A schema without references into its own document, and without `null` where one other type is left.

    What stands beside a reference or a choice, such as a default, stays; a title of the definition is not the field's.
    """
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        beside = {name: item for name, item in schema.items() if name not in ("$ref", "anyOf", "oneOf")}
        found = follow_reference(schema, root)
        kinds = schema.get("anyOf") or schema.get("oneOf")
        if found is None and isinstance(kinds, list):
            others = [one for one in kinds if one != {"type": "null"}]
            found = others[0] if len(others) == 1 else None
        if not isinstance(found, dict):
            break
        schema = {**found, "title": "", **beside}
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return {**schema, "type": next((one for one in kind if one != "null"), "null")}
    return dict(schema)


def _make_example(schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """A value of the shape of a schema, to be filled in."""
    schema = _resolve(schema, root)
    if schema.get("default") is not None:
        return schema["default"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind, properties = schema.get("type"), schema.get("properties")
    if depth < _MAX_EXAMPLE_DEPTH and (kind == "object" or isinstance(properties, dict)):
        names = list(properties)[:_MAX_EXAMPLE_NAMES] if isinstance(properties, dict) else []
        return {name: _make_example(properties[name], root, depth + 1) for name in names}
    if depth < _MAX_EXAMPLE_DEPTH and kind == "array":
        return [_make_example(schema["items"], root, depth + 1)] if isinstance(schema.get("items"), dict) else []
    return _EXAMPLES.get(kind) if isinstance(kind, str) else None


def _input_of(schema: dict[str, Any]) -> Input:
    if schema.get("enum"):
        return "choice"
    kind = schema.get("type")
    if kind == "string":
        return "text"
    if kind in ("integer", "number", "boolean"):
        return kind  # type: ignore[no-any-return]
    return "json"


def read_arguments(schema: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that a form sent; what was left empty is left out. Raises `InvalidForm` with the field's name."""
    fields = make_fields(schema)
    if fields and fields[0].name == WHOLE:
        found = _read_json(WHOLE, form.get(WHOLE) or "{}")
        if not isinstance(found, dict):
            raise InvalidForm("Arguments: a JSON object is needed, such as {}.")
        return found
    return {
        field.name.removeprefix(FIELD_PREFIX): _read_value(field, form[field.name])
        for field in fields
        if form.get(field.name, "") != ""
    }


def _read_value(field: Field, text: str) -> Any:
    if field.input == "text" or (field.input == "choice" and text in field.choices and not _is_json(text)):
        return text
    if field.input == "boolean":
        return text == "true"
    return _read_json(field.label, text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _read_json(label: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidForm(f"{label}: {text[:80]!r} is not JSON: {error}.") from None
