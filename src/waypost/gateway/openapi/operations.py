"""The operations of an OpenAPI document, each as a request to a connection and the arguments it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.gateway.openapi.schemas import Data, Schemas, followed, mapping
from waypost.workflows.executors.rest import Rest

MAX_OPERATIONS: Final = 5_000
MAX_PARAMETERS: Final = 200
LONGEST_DESCRIPTION: Final = 4_000
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
METHODS: Final[tuple[Method, ...]] = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")

_VARIABLE: Final = re.compile(r"\{([^{}/?#]+)\}")
_ODD: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_NOT_FOR_CALLERS: Final = frozenset(
    (
        "accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host",
        "idempotency-key", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that belong to the connection or to HTTP itself."""


class Operation(Struct, frozen=True, kw_only=True):
    """Something an API can do."""

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


def operations(document: Data, connection: str, given: Iterable[str] = ()) -> Iterator[Operation | LeftOut]:
    """Every operation; `given` are the headers that the connection sends by itself."""
    closed = _NOT_FOR_CALLERS | {name.lower() for name in given}
    count = 0
    for path, shared in mapping(document.get("paths") or {}, "`paths`").items():
        try:
            entries = followed(document, shared, f"the path {path[:100]!r}")
        except DefinitionError as error:
            yield LeftOut(path[:100], error.message)
            continue
        for method in METHODS:
            if method.lower() not in entries:
                continue
            count += 1
            if count > MAX_OPERATIONS:
                raise DefinitionError(f"the document has more than {MAX_OPERATIONS:,} operations")
            yield _operation(document, connection, path, method, entries, closed)


def _operation(
    document: Data, connection: str, path: str, method: Method, shared: Data, closed: frozenset[str]
) -> Operation | LeftOut:
    written = shared[method.lower()]
    id = _id_of(written, method, path)
    try:
        operation = mapping(written, "the operation")
        if not path.startswith("/") or "?" in path or "#" in path:
            raise DefinitionError(f"its path {path[:100]!r} is none")
        try:
            return _Maker(document, connection, path, method, closed, Schemas(document)).make(id, operation, shared)
        except DefinitionError:
            # Patterns are written for other engines; without them the rest of a schema still tells what is wanted.
            plain = Schemas(document, patterns=False)
            return _Maker(document, connection, path, method, closed, plain).make(id, operation, shared)
    except DefinitionError as error:
        return LeftOut(id, error.message)


def _id_of(written: Any, method: str, path: str) -> str:
    id = written.get("operationId") if isinstance(written, dict) else None
    return id[:200] if isinstance(id, str) and id else f"{method.lower()}_{_ODD.sub('_', path).strip('_')}"[:200]


class _Maker:
    """Makes one operation."""

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

    def make(self, id: str, operation: Data, shared: Data) -> Operation:
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
        """Those of the path and the operation's own, which win."""
        found: dict[tuple[str, str], _Parameter] = {}
        written = [*_list(shared.get("parameters")), *_list(operation.get("parameters"))]
        if len(written) > MAX_PARAMETERS:
            raise DefinitionError(f"it has more than {MAX_PARAMETERS} parameters")
        for value in written:
            one = self._parameter(followed(self._document, value, "a parameter"))
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
            schema = mapping(content[0], "the content of a parameter").get("schema")
        schema = {} if schema is None else schema
        if place == "query" and (written.get("explode") is False or style in ("spaceDelimited", "pipeDelimited")):
            schema = self._joined(schema, style)
        return _Parameter(name, place, is_required, schema, _text(written.get("description")))

    def _joined(self, schema: Any, style: Any) -> Any:
        """A list that is sent as one text is given as one."""
        if followed(self._document, schema, "a schema").get("type") != "array":
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
        """The media type, the schema and whether it is required; nothing where no JSON is sent."""
        if written is None:
            return None
        found = followed(self._document, written, "the request body")
        is_required = found.get("required") is True
        for media, entry in mapping(found.get("content") or {}, "the content of the request body").items():
            kind = media.partition(";")[0].strip().lower()
            if kind == "application/json" or (kind.endswith("+json") and _TOKEN.fullmatch(kind.replace("/", "-"))):
                schema = mapping(entry, "the content of the request body").get("schema")
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
    return value if len(value) <= LONGEST_DESCRIPTION else f"{value[:LONGEST_DESCRIPTION]}…"


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise DefinitionError("what should be a list is none")
    return value


def _list_of_values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
