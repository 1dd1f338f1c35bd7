"""OpenAPI documents: reads them, and turns their operations into exposures and their schemas into JSON Schema.

References stay references, to `$defs` beside the schema: a recursive schema would have no end if they were inlined.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import unquote, urlsplit

import msgspec
import yaml
from msgspec import Struct

from waypost.capabilities.schemas.graph import resolve_pointer
from waypost.capabilities.schemas.validators import Validator
from waypost.config.findings import Finding, KeyPath, quoted_file
from waypost.config.models import Import, RestConnection
from waypost.config.nodes import UNKNOWN, Composer, Node, Refused, events
from waypost.errors import DefinitionError, ToolError
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
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def require_mapping(value: Any, what: str) -> Data:
    """The value, if it is a mapping; anything else is a `DefinitionError`."""
    if not isinstance(value, dict):
        raise DefinitionError(f"{what} is not a mapping")
    return value


def require_list(value: Any, what: str) -> list[Any]:
    """The value, if it is a list, an empty one for nothing; anything else is a `DefinitionError`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise DefinitionError(f"{what} is not a list")
    return value


def follow_references(document: Data, value: Any, what: str) -> Data:
    """The value at the end of a chain of references."""
    for _ in range(MAX_HOPS):
        found = require_mapping(value, what)
        reference = found.get("$ref")
        if reference is None:
            return found
        value = require_target(document, reference)
    raise DefinitionError(f"{what} refers to itself, or from one reference to the next without an end")


def require_target(document: Data, reference: Any) -> Any:
    """The value that a reference inside the document points to."""
    if not isinstance(reference, str):
        raise DefinitionError("a reference is not text")
    if not reference.startswith("#/"):
        raise DefinitionError(f"the reference {reference[:100]!r} leads out of the document, and is not followed")
    found = resolve_pointer(document, unquote(reference[1:]))
    if not found:
        raise DefinitionError(f"the reference {reference[:100]!r} leads nowhere")
    return found[0]


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
            made[self._names[reference]] = self._schema(require_target(self._document, reference), 0)
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
            # OpenAPI 3.0 ignores what stands beside a reference.
            if self._is_old:
                return made
        for word, value in found.items():
            if word in _PLAIN_KEYWORDS:
                made[word] = self._value(value, depth + 1)
            elif word in _SCHEMA_KEYWORDS:
                made[word] = self._schema(value, depth + 1)
            elif word in _SCHEMA_LIST_KEYWORDS:
                made[word] = [self._schema(item, depth + 1) for item in require_list(value, f"`{word}` of a schema")]
            elif word in _SCHEMA_MAP_KEYWORDS:
                named = require_mapping(value, f"`{word}`")
                made[word] = {name: self._schema(item, depth + 1) for name, item in named.items()}
        self._adjust(found, made)
        return made

    def _adjust(self, found: Data, made: Data) -> None:
        if not self._patterns:
            made.pop("pattern", None)
            made.pop("patternProperties", None)
        required, properties = made.pop("required", None), found.get("properties")
        if isinstance(required, list):  # many write `required: true` at a property, which has no meaning
            known = properties.items() if isinstance(properties, dict) else ()
            # Properties that only responses have; they cannot be required in a request.
            read_only = [name for name, one in known if isinstance(one, dict) and one.get("readOnly") is True]
            made["required"] = [name for name in required if name not in read_only]
        _modernise(found, made)

    def _reference(self, reference: Any) -> str:
        if reference not in self._names if isinstance(reference, str) else True:
            require_target(self._document, reference)
            plain = base = _NOT_IN_NAMES.sub("_", reference.rpartition("/")[2])[:60] or "schema"
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
METHODS: Final[tuple[Method, ...]] = get_args(Method)
_READS: Final = {"read_only_hint": True}
_REPLACES: Final = {"idempotent_hint": True, "destructive_hint": True}
_HINTS: Final[dict[str, dict[str, bool]]] = {"GET": _READS, "HEAD": _READS, "PUT": _REPLACES, "DELETE": _REPLACES}

_VARIABLE: Final = re.compile(r"\{([^{}/?#]+)\}")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_RESERVED_HEADERS: Final = frozenset(
    (
        "accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
        "idempotency-key", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that callers cannot set: they belong to the connection or to HTTP itself."""


class LeftOut(NamedTuple):
    """An operation that cannot be offered, by its id, and why."""

    name: str
    why: str


class _Parameter(NamedTuple):
    name: str
    place: str
    is_required: bool
    schema: Any
    description: str | None


def list_operations(document: Data, connection: str, given: Iterable[str] = ()) -> Iterator[Offer | LeftOut]:
    """All operations; `given` are the headers that the connection sends by itself.

    The name of an offer is the operation id; where it has none, its method and path.
    """
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
) -> Offer | LeftOut:
    written = shared[method.lower()]
    id = written.get("operationId") if isinstance(written, dict) else None
    if not isinstance(id, str) or not id:
        id = f"{method.lower()}_{_NOT_IN_NAMES.sub('_', path).strip('_')}"
    id = id[:200]
    try:
        operation = require_mapping(written, "the operation")
        if not path.startswith("/") or "?" in path or "#" in path:
            raise DefinitionError(f"its path {path[:100]!r} is not valid")
        build = partial(_OperationBuilder, document, connection, path, method, closed)
        try:
            return build(Schemas(document)).build(id, operation, shared)
        except DefinitionError:
            # Patterns are often written for another engine; without them the schema is still useful.
            return build(Schemas(document, patterns=False)).build(id, operation, shared)
    except DefinitionError as error:
        return LeftOut(id, error.message)


@dataclass(slots=True)
class _OperationBuilder:
    """Builds one operation."""

    _document: Data
    _connection: str
    _path: str
    _method: Method
    _closed: frozenset[str]
    """The headers that callers cannot set."""
    _schemas: Schemas
    _properties: Data = field(default_factory=dict)
    _required: list[str] = field(default_factory=list)

    def build(self, id: str, operation: Data, shared: Data) -> Offer:
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
        return Offer(
            name=id,
            title=_text(operation.get("summary") or shared.get("summary")),
            description=_text(operation.get("description") or operation.get("summary") or shared.get("description"))
            or f"{self._method} {self._path}",
            tags=[tag for tag in require_list(operation.get("tags"), "`tags`") if isinstance(tag, str)][:20],
            input_schema=self._checked(),
            executor=request,
            bare=bare,
            annotations=_HINTS.get(self._method, {}) | {"open_world_hint": True},
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
        written = [one for of in (shared, operation) for one in require_list(of.get("parameters"), "`parameters`")]
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
        places = ("path", "query", "header", "cookie")
        if not isinstance(name, str) or not 0 < len(name) <= 200 or place not in places:
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
        content = written.get("content")
        if schema is None and isinstance(content, dict) and content:
            schema = require_mapping(next(iter(content.values())), "the content of a parameter").get("schema")
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


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    return value if len(value) <= MAX_DESCRIPTION_CHARACTERS else f"{value[:MAX_DESCRIPTION_CHARACTERS]}…"


MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
_FETCH_TIMEOUT_S: Final = 10.0
MAX_YAML_VALUES: Final = 1_000_000
MAX_YAML_DEPTH: Final = 128


def fetch_document(connection: RestConnection, folder: Path) -> tuple[bytes, bool]:
    """The document that was first fetched from the connection's URL and is kept in a folder since.

    Also whether the server has another one by now.
    What agents were offered must not change behind the back of an operator, so a document that differs from the kept
    one is only reported. A server that cannot be reached changes nothing. Not to be called on an event loop.
    """
    kept = kept_file(connection, folder)
    before = kept.read_bytes() if kept.is_file() else None
    try:
        with ThreadPoolExecutor(1) as threads:  # a loop may run in this one
            data = threads.submit(asyncio.run, _download(connection)).result()
        parse_document(data)
    except (DefinitionError, ToolError) as error:
        if before is None:
            raise DefinitionError(f"the document cannot be fetched: {error.message.rstrip('.')}") from None
        return before, False
    if before is None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # In one step: other processes may read it at the same time.
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(data)
        fresh.replace(kept)
    return before or data, before not in (None, data)


def kept_file(connection: RestConnection, folder: Path) -> Path:
    """Where the document of a connection is kept, under the digest of its URL."""
    return folder / f"{sha256(str(connection.openapi).encode()).hexdigest()[:32]}.openapi"


async def _download(connection: RestConnection) -> bytes:
    # Loading the HTTP client takes longer than reading most documents.
    from waypost.outbound.egress import Egress

    url = str(connection.openapi)
    # The headers may hold a key, which only the API itself may see.
    is_own = urlsplit(url)[:2] == urlsplit(connection.base_url)[:2]
    egress = Egress(connection.allow_private)
    try:
        headers = connection.headers if is_own else {}
        answer = await egress.request("GET", url, headers, within=_FETCH_TIMEOUT_S, most_bytes=MAX_DOCUMENT_BYTES)
    finally:
        await egress.close()
    if answer.status != 200:
        raise DefinitionError(f"the server answered {answer.status}")
    return answer.body


def read_document(file: str) -> Data:
    """Read a document from a file."""
    return parse_document(_read_file(file))


def parse_document(data: bytes) -> Data:
    """The document that bytes hold; a `DefinitionError` unless it is OpenAPI 3.0, 3.1 or 3.2."""
    data = data.removeprefix(b"\xef\xbb\xbf")
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
            raise DefinitionError(f"the document {quoted_file(file)} is not a regular file")
        with open(file, "rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be used"
        raise DefinitionError(f"the document {quoted_file(file)} cannot be read: {reason.lower()}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DefinitionError(f"the document is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
    return data


def _parse_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise DefinitionError("the document is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _parse_yaml(data)  # a mapping of YAML may begin with a brace, too


def _parse_yaml(data: bytes) -> Any:
    findings: list[Finding] = []
    try:
        composed = _to_data(_Composer("", findings).document(events(data.decode(), "")), {})
    except UnicodeDecodeError:
        raise DefinitionError("the document is not UTF-8 text") from None
    except Refused as refused:
        findings.insert(0, refused.found)
    for found in findings:
        if found.code != "CFG006":  # of a key that is given twice, the first is used
            raise DefinitionError(f"line {found.line} of the document cannot be read: {found.message}")
    return composed


class _Composer(Composer):
    """Composes documents, which are larger than configurations and have keys that are no text, such as status codes."""

    max_nodes = MAX_YAML_VALUES
    max_depth = MAX_YAML_DEPTH

    def alias(self, event: yaml.AliasEvent, path: KeyPath, depth: int) -> Node:
        """The node of the anchor itself: its value is used twice, never copied, so it is not counted again."""
        return self.anchors.get(str(event.anchor)) or super().alias(event, path, depth)

    def key(self, node: Node, path: KeyPath) -> str | None:
        """Any key, as text."""
        return node.value if isinstance(node.value, str) else repr(node.value)[:100]


def _to_data(node: Node, known: dict[int, Any]) -> Any:
    """The values without their places; what nodes share stays shared."""
    value = node.value
    if not isinstance(value, dict | list):
        return None if value is UNKNOWN else value
    if id(value) not in known:
        children = value.values() if isinstance(value, dict) else value
        data = [_to_data(child, known) for child in children]
        known[id(value)] = dict(zip(value, data, strict=True)) if isinstance(value, dict) else data
    return known[id(value)]


MAX_NAME_CHARACTERS: Final = 128


class Imported(Struct):
    """The result of an import: offers, operations left out, and configured names that no operation has."""

    offers: list[Offer] = []
    left_out: list[LeftOut] = []
    unknown: list[str] = []
    is_changed: bool = False
    """Whether the server has another document than the one that was kept, and is used."""


def import_operations(entry: Import, connection: RestConnection, folder: Path) -> Imported:
    """The operations that an import asks for; a `DefinitionError` where the document cannot be used at all.

    A document at a URL is kept in `folder`.
    """
    if connection.openapi is None:
        raise DefinitionError("the connection has no `openapi` document to take operations from")
    result = Imported()
    if "://" in connection.openapi:
        data, result.is_changed = fetch_document(connection, folder)
        document = parse_document(data)
    else:
        document = read_document(connection.openapi)
    names: set[str] = set()
    seen: set[str] = set()
    prefix = build_prefix(entry)
    for found in list_operations(document, entry.connection, connection.headers):
        id = found.name
        seen.add(id)
        if (entry.include and id not in entry.include) or id in entry.exclude:
            continue
        if isinstance(found, LeftOut):
            result.left_out.append(found)
            continue
        name = f"{prefix}.{_NOT_IN_NAMES.sub('_', id)}"
        if len(name) > MAX_NAME_CHARACTERS:
            result.left_out.append(LeftOut(id, f"its name would be longer than {MAX_NAME_CHARACTERS} characters"))
        elif name in names:
            result.left_out.append(LeftOut(id, f"another one is called {name} already"))
        else:
            names.add(name)
            tags = list(dict.fromkeys([*found.tags, *entry.tags]))
            result.offers.append(msgspec.structs.replace(found, name=name, tags=tags))
    result.unknown = [name for name in dict.fromkeys([*entry.include, *entry.exclude]) if name not in seen]
    return result


def build_prefix(entry: Import) -> str:
    """The prefix of the names of an import."""
    if entry.prefix is not None:
        return entry.prefix
    plain = _NOT_IN_NAMES.sub("_", entry.connection)
    return plain if plain[:1].isalpha() else f"api_{plain}"
