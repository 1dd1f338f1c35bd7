"""OpenAPI documents: reads them, and turns their operations into exposures and their schemas into JSON Schema.

References stay references, to `$defs` beside the schema: a recursive schema would have no end if they were inlined.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
import yaml
from msgspec import Struct

from waypost.capabilities.schemas.validators import Validator
from waypost.config.models import Import, RestConnection
from waypost.config.nodes import resolve
from waypost.errors import DefinitionError
from waypost.imports.exposures import Offer
from waypost.workflows.executors.rest import Rest

MAX_VALUES: Final = 5_000
"""How many values the schema of one operation may have."""
MAX_DEPTH: Final = 40
MAX_HOPS: Final = 10
Data = dict[str, Any]

_PLAIN_KEYWORDS: Final = frozenset(
    (
        "type", "enum", "const", "default", "title", "description", "format", "multipleOf", "maximum", "minimum",
        "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems",
        "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required", "examples",
        "deprecated", "dependentRequired", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip
_SCHEMA_KEYWORDS: Final = frozenset(
    (
        "additionalProperties", "items", "not", "contains", "propertyNames", "if", "then", "else",
        "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip
_SCHEMA_LIST_KEYWORDS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SCHEMA_MAP_KEYWORDS: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_NOT_IN_DEFINITIONS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def require_mapping(value: Any, what: str) -> Data:
    """The value, if it is a mapping; anything else is a `DefinitionError`."""
    if not isinstance(value, dict):
        raise DefinitionError(f"{what} is not a mapping")
    return value


def follow_references(document: Data, value: Any, what: str) -> Data:
    """The value at the end of a chain of references."""
    for _ in range(MAX_HOPS):
        found = require_mapping(value, what)
        reference = found.get("$ref")
        if reference is None:
            return found
        value = resolve_pointer(document, reference)
    raise DefinitionError(f"{what} refers to itself, or from one reference to the next without an end")


def resolve_pointer(document: Data, reference: Any) -> Any:
    """The value that a reference inside the document points to."""
    if not isinstance(reference, str):
        raise DefinitionError("a reference is not text")
    if not reference.startswith("#/"):
        raise DefinitionError(f"the reference {reference[:100]!r} leads out of the document, and is not followed")
    value: Any = document
    for part in reference[2:].split("/")[:50]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise DefinitionError(f"the reference {reference[:100]!r} leads nowhere")
    return value


class Schemas:
    """Turns the schemas of one operation into JSON Schema."""

    def __init__(self, document: Data, *, patterns: bool = True) -> None:
        self._document = document
        self._is_old = str(document.get("openapi")).startswith("3.0")
        self._patterns = patterns
        self._names: dict[str, str] = {}
        self._waiting: list[str] = []
        self._count = 0

    def convert(self, schema: Any) -> Any:
        """A schema in JSON Schema; `definitions` afterwards returns what it refers to."""
        return self._schema(schema, 0)

    def definitions(self) -> Data:
        """All definitions that the converted schemas refer to, by name."""
        made: Data = {}
        while self._waiting:
            reference = self._waiting.pop()
            made[self._names[reference]] = self._schema(resolve_pointer(self._document, reference), 0)
        return made

    def _grow(self, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise DefinitionError(f"its schema holds more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise DefinitionError("its schema is nested too deeply")

    def _schema(self, schema: Any, depth: int) -> Any:
        self._grow(depth)
        if isinstance(schema, bool):
            return schema
        found = require_mapping(schema, "a schema")
        made: Data = {}
        if "$ref" in found:
            made["$ref"] = self._reference(found["$ref"])
            if self._is_old:
                return made
        for word, value in found.items():
            if word in _PLAIN_KEYWORDS:
                made[word] = self._value(value, depth + 1)
            elif word in _SCHEMA_KEYWORDS:
                made[word] = self._schema(value, depth + 1)
            elif word in _SCHEMA_LIST_KEYWORDS:
                made[word] = [self._schema(item, depth + 1) for item in _require_list(value, word)]
            elif word in _SCHEMA_MAP_KEYWORDS:
                named = require_mapping(value, f"`{word}`")
                made[word] = {name: self._schema(item, depth + 1) for name, item in named.items()}
        self._adjust(found, made)
        return made

    def _adjust(self, found: Data, made: Data) -> None:
        if not self._patterns:
            made.pop("pattern", None)
            made.pop("patternProperties", None)
        read_only = _read_only_names(found.get("properties"))
        required = made.pop("required", None)
        if isinstance(required, list):  # many write `required: true` at a property, which has no meaning
            made["required"] = [name for name in required if name not in read_only]
        _modernise(found, made)

    def _reference(self, reference: Any) -> str:
        if reference not in self._names if isinstance(reference, str) else True:
            resolve_pointer(self._document, reference)
            plain = base = _NOT_IN_DEFINITIONS.sub("_", reference.rpartition("/")[2])[:60] or "schema"
            taken, number = set(self._names.values()), 2
            while plain in taken:
                plain, number = f"{base}_{number}", number + 1
            self._names[reference] = plain
            self._waiting.append(reference)
        return f"#/$defs/{self._names[reference]}"

    def _value(self, value: Any, depth: int) -> Any:
        """A copy of plain data, counted: aliases of YAML can make a small document huge."""
        self._grow(depth)
        if isinstance(value, dict):
            return {name: self._value(item, depth + 1) for name, item in value.items()}
        return [self._value(item, depth + 1) for item in value] if isinstance(value, list) else value


def _require_list(value: Any, word: str) -> list[Any]:
    if not isinstance(value, list):
        raise DefinitionError(f"`{word}` of a schema is not a list")
    return value


def _read_only_names(properties: Any) -> list[str]:
    """Properties that only responses have; they cannot be required in a request."""
    if not isinstance(properties, dict):
        return []
    return [name for name, one in properties.items() if isinstance(one, dict) and one.get("readOnly") is True]


def _modernise(found: Data, made: Data) -> None:
    """Translate keywords of OpenAPI 3.0, which are also found in documents of 3.1."""
    for word, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(word), bool):
            is_exclusive = made.pop(word)
            if is_exclusive and limit in made:
                made[word] = made.pop(limit)
    if found.get("nullable") is not True:
        return
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    if isinstance(made.get("enum"), list) and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]


MAX_OPERATIONS: Final = 5_000
MAX_PARAMETERS: Final = 200
MAX_DESCRIPTION_CHARACTERS: Final = 4_000
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
METHODS: Final[tuple[Method, ...]] = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

_VARIABLE: Final = re.compile(r"\{([^{}/?#]+)\}")
_NOT_IN_IDS: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_RESERVED_HEADERS: Final = frozenset(
    (
        "accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
        "idempotency-key", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that callers cannot set: they belong to the connection or to HTTP itself."""


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of an API."""

    id: str
    """Its operation id; where it has none, its method and path."""
    title: str | None
    description: str | None
    tags: list[str]
    input_schema: Data
    request: Rest
    bare: Rest | None
    """The request without a body, where one may be left out."""
    annotations: dict[str, bool]


class LeftOut(NamedTuple):
    """An operation that cannot be offered, and why."""

    id: str
    why: str


class _Parameter(NamedTuple):
    name: str
    place: str
    is_required: bool
    schema: Any
    description: str | None


def list_operations(document: Data, connection: str, given: Iterable[str] = ()) -> Iterator[Operation | LeftOut]:
    """All operations; `given` are the headers that the connection sends by itself."""
    closed = _RESERVED_HEADERS | {name.lower() for name in given}
    count = 0
    for path, shared in require_mapping(document.get("paths") or {}, "`paths`").items():
        try:
            entries = follow_references(document, shared, f"the path {path[:100]!r}")
        except DefinitionError as error:
            yield LeftOut(path[:100], error.message)
            continue
        for method in METHODS:
            if method.lower() not in entries:
                continue
            count += 1
            if count > MAX_OPERATIONS:
                raise DefinitionError(f"the document has more than {MAX_OPERATIONS:,} operations")
            yield _build_operation(document, connection, path, method, entries, closed)


def _build_operation(
    document: Data, connection: str, path: str, method: Method, shared: Data, closed: frozenset[str]
) -> Operation | LeftOut:
    written = shared[method.lower()]
    id = _operation_id(written, method, path)
    try:
        operation = require_mapping(written, "the operation")
        if not path.startswith("/") or "?" in path or "#" in path:
            raise DefinitionError(f"its path {path[:100]!r} is not valid")
        try:
            return _OperationBuilder(document, connection, path, method, closed, Schemas(document)).build(
                id, operation, shared
            )
        except DefinitionError:
            # Patterns are often written for another engine; without them the schema is still useful.
            plain = Schemas(document, patterns=False)
            return _OperationBuilder(document, connection, path, method, closed, plain).build(id, operation, shared)
    except DefinitionError as error:
        return LeftOut(id, error.message)


def _operation_id(written: Any, method: str, path: str) -> str:
    id = written.get("operationId") if isinstance(written, dict) else None
    return id[:200] if isinstance(id, str) and id else f"{method.lower()}_{_NOT_IN_IDS.sub('_', path).strip('_')}"[:200]


class _OperationBuilder:
    """Builds one operation."""

    def __init__(
        self, document: Data, connection: str, path: str, method: Method, closed: frozenset[str], schemas: Schemas
    ) -> None:
        self._document = document
        self._connection = connection
        self._path = path
        self._method = method
        self._closed = closed
        self._schemas = schemas
        self._properties: Data = {}
        self._required: list[str] = []

    def build(self, id: str, operation: Data, shared: Data) -> Operation:
        """The operation; a `DefinitionError` for one that cannot be used."""
        found = self._parameters(operation, shared)
        body = self._body(operation.get("requestBody"))
        self._add_variables(found)
        taken = {"body"} if body is not None else set()
        if taken & self._properties.keys():
            raise DefinitionError("its path has a variable called `body`, which is the name of what is sent")
        places: dict[str, Data] = {"query": {}, "header": {}}
        for one in found:
            if one.place in places:
                key = one.name if one.name not in {*self._properties, *taken} else f"{one.place}_{one.name}"
                self._add(key, one)
                places[one.place][one.name] = f"$.arguments[{json.dumps(key)}]"
        headers = places["header"]
        is_required = False
        if body is not None:
            media, schema, is_required = body
            self._properties["body"] = schema
            self._required += ["body"] if is_required else []
            headers = {**headers, "Content-Type": media}
        request = self._request(places["query"], headers, None if body is None else "$.arguments.body")
        bare = None if body is None or is_required else self._request(places["query"], places["header"], None)
        return Operation(
            id=id,
            title=_text(operation.get("summary") or shared.get("summary")),
            description=_text(operation.get("description") or operation.get("summary") or shared.get("description"))
            or f"{self._method} {self._path}",
            tags=[tag for tag in _list(operation.get("tags")) if isinstance(tag, str)][:20],
            input_schema=self._checked(),
            request=request,
            bare=bare,
            annotations=_annotations(self._method),
        )

    def _request(self, query: Data, headers: Data, body: Any) -> Rest:
        return Rest(
            connection=self._connection,
            method=self._method,
            path=self._path,
            query=query,
            headers=headers,
            body=body,
            idempotent=self._method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"),
        )

    def _checked(self) -> Data:
        schema: Data = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        definitions = self._schemas.definitions()
        if definitions:
            schema["$defs"] = definitions
        Validator(schema)
        return schema

    def _parameters(self, operation: Data, shared: Data) -> list[_Parameter]:
        """The parameters of the path, overridden by those of the operation."""
        found: dict[tuple[str, str], _Parameter] = {}
        written = [*_list(shared.get("parameters")), *_list(operation.get("parameters"))]
        if len(written) > MAX_PARAMETERS:
            raise DefinitionError(f"it has more than {MAX_PARAMETERS} parameters")
        for value in written:
            one = self._parameter(follow_references(self._document, value, "a parameter"))
            if one is not None:
                found[one.name, one.place] = one
        return list(found.values())

    def _parameter(self, written: Data) -> _Parameter | None:
        name, place = written.get("name"), written.get("in")
        is_required = written.get("required") is True
        if (
            not isinstance(name, str)
            or not name
            or len(name) > 200
            or place not in ("path", "query", "header", "cookie")
        ):
            raise DefinitionError("a parameter has no name, or no place that is known")
        if place == "header" and (name.lower() in self._closed or not _TOKEN.fullmatch(name)):
            return None
        style = written.get("style")
        if place == "cookie" or style == "deepObject":
            if is_required:
                kind = "a cookie" if place == "cookie" else "an object spread over the query"
                raise DefinitionError(f"it requires {name!r} as {kind}, which is not supported")
            return None
        schema = written.get("schema")
        if schema is None and (content := _list_of_values(written.get("content"))):
            schema = require_mapping(content[0], "the content of a parameter").get("schema")
        schema = {} if schema is None else schema
        if place == "query" and (written.get("explode") is False or style in ("spaceDelimited", "pipeDelimited")):
            schema = self._joined(schema, style)
        return _Parameter(name, place, is_required, schema, _text(written.get("description")))

    def _joined(self, schema: Any, style: Any) -> Any:
        """The schema of a list that is sent as one text."""
        if follow_references(self._document, schema, "a schema").get("type") != "array":
            return schema
        between = {"spaceDelimited": "spaces", "pipeDelimited": "`|`"}.get(str(style), "commas")
        return {"type": "string", "description": f"Several values, with {between} between them"}

    def _add_variables(self, found: list[_Parameter]) -> None:
        declared = {one.name: one for one in found if one.place == "path"}
        for name in dict.fromkeys(_VARIABLE.findall(self._path)):
            one = declared.get(name) or _Parameter(name, "path", True, {"type": "string"}, None)
            self._add(name, one._replace(is_required=True))

    def _add(self, key: str, one: _Parameter) -> None:
        if key in self._properties:
            raise DefinitionError(f"two of its parameters are called {key!r}")
        schema = self._schemas.convert(one.schema)
        if one.description and isinstance(schema, dict) and "description" not in schema:
            schema = {**schema, "description": one.description}
        self._properties[key] = schema
        if one.is_required:
            self._required.append(key)

    def _body(self, written: Any) -> tuple[str, Any, bool] | None:
        """The media type, the schema and whether it is required; `None` without a JSON body."""
        if written is None:
            return None
        found = follow_references(self._document, written, "the request body")
        is_required = found.get("required") is True
        for media, entry in require_mapping(found.get("content") or {}, "the content of the request body").items():
            kind = media.partition(";")[0].strip().lower()
            if kind == "application/json" or (kind.endswith("+json") and _TOKEN.fullmatch(kind.replace("/", "-"))):
                schema = require_mapping(entry, "the content of the request body").get("schema")
                return kind, self._schemas.convert({} if schema is None else schema), is_required
        if is_required:
            raise DefinitionError("it requires a body that is not JSON, which is not supported")
        return None


def _annotations(method: Method) -> dict[str, bool]:
    hints = {"open_world_hint": True}
    if method in ("GET", "HEAD"):
        hints["read_only_hint"] = True
    if method in ("PUT", "DELETE"):
        hints |= {"idempotent_hint": True, "destructive_hint": True}
    return hints


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    return value if len(value) <= MAX_DESCRIPTION_CHARACTERS else f"{value[:MAX_DESCRIPTION_CHARACTERS]}…"


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise DefinitionError("a list was expected")
    return value


def _list_of_values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
MAX_YAML_VALUES: Final = 1_000_000
MAX_YAML_DEPTH: Final = 128
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_document(file: str) -> Data:
    """Read a document; a `DefinitionError` unless it is OpenAPI 3.0, 3.1 or 3.2."""
    data = _read_file(file)
    document = _parse_json(data) if data.lstrip()[:1] == b"{" else _parse_yaml(data)
    if not isinstance(document, dict):
        raise DefinitionError("the document is not a mapping")
    version = document.get("openapi")
    if "swagger" in document and version is None:
        raise DefinitionError("the document is of Swagger 2.0; convert it to OpenAPI 3.0, 3.1 or 3.2")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1", "3.2")):
        raise DefinitionError(
            "the document does not say `openapi: 3.0.x`, `3.1.x` or `3.2.x`, the versions that are read"
        )
    return document


def _read_file(file: str) -> bytes:
    try:
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise DefinitionError("the document is not a regular file")
        with open(file, "rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be used"
        raise DefinitionError(f"the document cannot be read: {reason.lower()}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DefinitionError(f"the document is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
    return data.removeprefix(b"\xef\xbb\xbf")


def _parse_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise DefinitionError("the document is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_yaml(data)  # a mapping of YAML may begin with a brace, too


def _parse_yaml(data: bytes) -> Any:
    try:
        return _Composer().document(yaml.parse(data.decode(), Loader=_Loader))
    except UnicodeDecodeError:
        raise DefinitionError("the document is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DefinitionError(f"the document is neither JSON nor YAML: {error.problem}{where}") from None
    except yaml.YAMLError:
        raise DefinitionError("the document is neither JSON nor YAML") from None


class _Composer:
    """Builds values from the events of a parser; an alias is the same object as its anchor, never a copy."""

    def __init__(self) -> None:
        self._count = 0
        self._anchors: dict[str, Any] = {}

    def document(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._value(next(events), events, 1)
        return None

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
        self._count += 1
        if self._count > MAX_YAML_VALUES:
            raise DefinitionError(f"the document holds more than {MAX_YAML_VALUES:,} values")
        if depth > MAX_YAML_DEPTH:
            raise DefinitionError("the document is nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise DefinitionError("the document has an alias without an anchor before it")
            return self._anchors[event.anchor]
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = resolve(event.value) if event.implicit[0] and not event.tag else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._items(events, yaml.SequenceEndEvent, depth))
        else:
            parts = list(self._items(events, yaml.MappingEndEvent, depth))
            value = {_key(key): item for key, item in zip(parts[::2], parts[1::2], strict=True)}
        anchor = getattr(event, "anchor", None)
        if anchor:
            self._anchors[anchor] = value
        return value

    def _items(self, events: Iterator[yaml.Event], end: type[yaml.Event], depth: int) -> Iterator[Any]:
        while not isinstance(event := next(events), end):
            yield self._value(event, events, depth + 1)


def _key(value: Any) -> str:
    """A key as text: status codes are often written as numbers."""
    return value if isinstance(value, str) else repr(value)[:100]


MAX_NAME_CHARACTERS: Final = 128
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_.-]+")


class Imported(Struct):
    """The result of an import: offers, operations left out, and configured names that no operation has."""

    offers: list[Offer] = []
    left_out: list[LeftOut] = []
    unknown: list[str] = []


def import_operations(entry: Import, connection: RestConnection) -> Imported:
    """The operations that an import asks for; a `DefinitionError` where the document cannot be used at all."""
    if connection.openapi is None:
        raise DefinitionError("the connection has no `openapi` document to take operations from")
    result = Imported()
    names: set[str] = set()
    seen: set[str] = set()
    prefix = build_prefix(entry)
    for found in list_operations(read_document(connection.openapi), entry.connection, connection.headers):
        seen.add(found.id)
        if (entry.include and found.id not in entry.include) or found.id in entry.exclude:
            continue
        if isinstance(found, LeftOut):
            result.left_out.append(found)
            continue
        name = f"{prefix}.{_NOT_IN_NAMES.sub('_', found.id)}"
        if len(name) > MAX_NAME_CHARACTERS:
            result.left_out.append(LeftOut(found.id, f"its name would be longer than {MAX_NAME_CHARACTERS} characters"))
        elif name in names:
            result.left_out.append(LeftOut(found.id, f"another one is called {name} already"))
        else:
            names.add(name)
            result.offers.append(_offer(name, found, entry))
    result.unknown = [name for name in dict.fromkeys([*entry.include, *entry.exclude]) if name not in seen]
    return result


def build_prefix(entry: Import) -> str:
    """The prefix of the names of an import."""
    if entry.prefix is not None:
        return entry.prefix
    plain = _NOT_IN_NAMES.sub("_", entry.connection)
    return plain if plain[:1].isalpha() else f"api_{plain}"


def _offer(name: str, found: Operation, entry: Import) -> Offer:
    return Offer(
        name=name,
        title=found.title,
        description=found.description,
        tags=list(dict.fromkeys([*found.tags, *entry.tags])),
        input_schema=found.input_schema,
        executor=found.request,
        bare=found.bare,
        annotations=found.annotations,
    )
