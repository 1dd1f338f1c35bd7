"""Functions as tools: their schemas, the capabilities that the pipeline runs, and what the registry shows of them.

Some clients drop the whole list of tools over one bad schema, so every schema is checked before it is published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.capability import Capability, Kind, Priority
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.names import disambiguate, is_wire_name, to_portable
from waypost.capabilities.options import Metadata
from waypost.capabilities.registry import PREFIXES, Offer, Registry
from waypost.capabilities.schemas.forms import OPEN, require
from waypost.capabilities.schemas.validators import Validator, check_limits
from waypost.errors import DefinitionError
from waypost.wire.definitions import ToolDefinition
from waypost.workers.frames import encode
from waypost.workers.functions import DEFAULT, Call, Function, is_internal, trace_here

MAX_SCHEMA_DEPTH: Final = 32
"""How many schemas may stand within each other."""
TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_LEVELS: Final = 2 * MAX_SCHEMA_DEPTH + 2
"""Levels of JSON that many schemas have: each stands in the `properties` of the one around it."""
_DRAFTS: Final = frozenset(
    (
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
_PLACES: Final = ("$defs", "definitions")


def find_schema_problem(schema: dict[str, Any]) -> str | None:
    """Why a schema cannot be used, if it cannot."""
    if not _is_shallow(schema, _LEVELS):
        return f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels"
    try:
        check_limits(schema)
        if not _is_plain(schema, _LEVELS, schema):
            Validator(schema)
    except DefinitionError as error:
        return error.message
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in value)


def _is_plain(schema: Any, levels: int, root: dict[str, Any]) -> bool:
    """Whether everything in a schema is of a kind that needs no further look."""
    if type(schema) is bool:
        return True
    if type(schema) is not dict or levels <= 0:
        return False
    for keyword, value in schema.items():
        simple = _SIMPLE.get(keyword)
        if simple is not None:
            if not simple(value):
                return False
        elif not _is_plain_part(keyword, value, levels, root):
            return False
    return True


def _is_plain_part(keyword: str, value: Any, levels: int, root: dict[str, Any]) -> bool:
    if keyword in ("properties", *_PLACES):
        return type(value) is dict and all(_is_plain(one, levels - 2, root) for one in value.values())
    if keyword in ("items", "additionalProperties"):
        return _is_plain(value, levels - 1, root)
    if keyword in ("anyOf", "oneOf", "allOf"):
        return type(value) is list and bool(value) and all(_is_plain(one, levels - 2, root) for one in value)
    if keyword in ("default", "const"):
        return _is_shallow(value, levels - 1)
    if keyword in ("enum", "examples"):
        return type(value) is list and _is_shallow(value, levels - 1)
    return keyword == "$ref" and type(value) is str and _is_there(value, root)


def _is_there(reference: str, root: dict[str, Any]) -> bool:
    """Whether a reference leads to one of the definitions of the same schema."""
    start, _, rest = reference.partition("/")
    place, _, name = rest.partition("/")
    found = root.get(place) if start == "#" and place in _PLACES else None
    return type(found) is dict and name in found and not set(name) & set("~%/")


def _is_type(value: Any) -> bool:
    if type(value) is str:
        return value in TYPES
    return type(value) is list and 0 < len(value) == len(set(map(str, value))) and all(map(_is_name, value))


def _is_name(value: Any) -> bool:
    return type(value) is str and value in TYPES


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_draft(value: Any) -> bool:
    return type(value) is str and value in _DRAFTS


def _are_names(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value)) and len(value) == len(set(value))


def _is_pattern(value: Any) -> bool:
    return type(value) is str and _compiles(value)


@lru_cache(maxsize=1024)
def _compiles(pattern: str) -> bool:
    try:
        Validator({"pattern": pattern})
    except DefinitionError:
        return False
    return True


_SIMPLE: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "required": _are_names,
    "pattern": _is_pattern,
    "$schema": _is_draft,
    **dict.fromkeys(("title", "description", "format", "$comment"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), _is_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
}


_TYPES: Final = {**{name: name for name in TYPES}, "map": "object"}


def input_schema(given: Any) -> dict[str, Any]:
    """The schema of what a function takes; anything where it says nothing that can be used."""
    schema = _schema(given)
    if schema is None or not _is_of_objects(schema.get("type", "object")):
        return {"type": "object"}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def output_schema(given: Any) -> dict[str, Any] | None:
    """The schema of what a function answers, where that is an object."""
    schema = _schema(given)
    return schema if schema is not None and schema.get("type") == "object" else None


def open_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left of a schema that nobody can use: any object, and what was said of it."""
    said = schema.get("description")
    return {"type": "object", "description": said} if isinstance(said, str) else {"type": "object"}


def _schema(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, Mapping):
        return None
    if _is_tree(given):
        return _from_tree(given, 0)
    schema = dict(given)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    if not all(isinstance(one, (Mapping, bool)) for one in properties.values()):
        return None
    if properties:  # some clients stumble over truth values in place of schemas
        schema["properties"] = {name: {} if one is True else one for name, one in properties.items()}
    return schema


def _is_of_objects(kind: Any) -> bool:
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _is_tree(given: Mapping[str, Any]) -> bool:
    """Whether it is in the older form: a named field with a type, and with fields of its own."""
    return isinstance(given.get("name"), str) and isinstance(given.get("type"), str) and "properties" not in given


def _from_tree(field: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kind = _TYPES.get(str(field.get("type")))
    schema: dict[str, Any] = {} if kind is None else {"type": kind}
    if isinstance(field.get("description"), str):
        schema["description"] = field["description"]
    body, items = field.get("body"), field.get("items")
    if depth < MAX_SCHEMA_DEPTH and isinstance(body, list):
        fields = [one for one in body if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
        schema["properties"] = {one["name"]: _from_tree(one, depth + 1) for one in fields}
        required = [one["name"] for one in fields if one.get("required")]
        if required:
            schema["required"] = required
    if depth < MAX_SCHEMA_DEPTH and isinstance(items, Mapping):
        schema["items"] = _from_tree(items, depth + 1)
    return schema


_log: Final = logging.getLogger(__name__)
CATEGORY: Final = "Workers"
_NAMESPACE: Final = "waypost/namespace"
_PREFIXES: Final = tuple(PREFIXES)


class _Form:
    """The arguments of a worker's function, checked by its schema where that can be used."""

    cast_plan = None

    def __init__(self, function_id: str, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._id = function_id
        self._validator: Validator | None = None
        self._is_ready = False

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they came, if they fit."""
        if not self._is_ready:
            self._is_ready = True
            try:
                self._validator = Validator(self.schema)
            except DefinitionError as error:
                _log.warning("the arguments of %s are not checked: its schema cannot be used: %s", self._id, error)
        if self._validator is not None:
            require(self._validator, arguments)
        return arguments


def build_handler(function: Function) -> Handler:
    """How the pipeline runs a function: calls of workers pass through as they are, others are put into words for it."""

    async def run(given: Any, ctx: Context) -> Any:
        start = function.run if function.watch is None else function.watch.run
        if type(given) is Call:
            if function.owner is None:
                given.caller = ctx.caller
            return await start(given)
        key = ctx.idempotency_key
        metadata = Raw(encode({"idempotencyKey": key})) if key else UNSET
        return await start(Call(function.id, Raw(encode(given)), metadata, *trace_here(), caller=ctx.caller))

    return run


def internal_capability(function: Function) -> Capability:
    """What stands for a function that is nobody's tool."""
    return Capability(
        kind=Kind.TOOL,
        id=function.id,
        definition=ToolDefinition(function.id),
        handler=build_handler(function),
        is_async=True,
        arguments=OPEN,
        owner="hub",
        metadata=Metadata(hidden=True),
    )


class Offers:
    """Publishes the functions of workers and of the hub as tools of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def exchange(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Withdraw functions and offer others, seen from outside as one change."""
        new = list(new)
        kept = {function.key for function in new}
        with self._registry.as_one_change():
            for function in old:
                if function.key not in kept and not is_internal(function.id):
                    self._registry.offer(_source(function.id, function.namespace), (), Priority.WORKER)
            # Of functions that are registered together, the one whose id the name stands for has it.
            for function in sorted(new, key=_is_ambiguous):
                if is_internal(function.id):
                    row = internal_capability(function)
                    function.offer = Offer("", row, row)
                else:
                    source = _source(function.id, function.namespace)
                    (function.offer,) = self._registry.offer(source, [_build_tool(function)], Priority.WORKER)


def _source(function_id: str, namespace: str) -> str:
    return f"{namespace}/{function_id}"


def _is_ambiguous(function: Function) -> bool:
    """Whether the name of a function as a tool stands for another function, be there one or not."""
    return function.namespace != DEFAULT or tool_name(function.id).replace("__", "::") != function.id


def find_function_tool(registry: Registry, function_id: str, namespace: str = DEFAULT) -> Capability | None:
    """The tool that is a function, whatever it had to be called."""
    plain = tool_name(function_id)
    found, attempt = registry.tools.get(plain), 0
    while found is None or not _stands_for(found, function_id, namespace):
        found = registry.tools.get(disambiguate(_source(function_id, namespace), plain, attempt))
        if found is None:
            return None
        attempt += 1
    return found


def _stands_for(tool: Capability, function_id: str, namespace: str) -> bool:
    return (
        tool.metadata.category == CATEGORY
        and (tool.definition.title or tool.id) == function_id
        and (tool.definition.meta or {}).get(_NAMESPACE, DEFAULT) == namespace
    )


def tool_name(function_id: str) -> str:
    """A function's id as the name of a tool: `a::b` is `a__b`; what begins like a skill or a workflow does not."""
    name = function_id.replace("::", "__")
    if name.startswith(_PREFIXES):
        name = name.replace(":", "_", 1)
    return name if is_wire_name(name) else to_portable(name) or "function"


def _build_tool(function: Function) -> Capability:
    name = tool_name(function.id)
    schema, returns = _schemas(function)
    metadata = function.metadata if isinstance(function.metadata, dict) else {}
    meta: dict[str, Any] = {"category": CATEGORY}
    if function.namespace != DEFAULT:
        meta[_NAMESPACE] = function.namespace
    tool = Capability(
        kind=Kind.TOOL,
        id=name,
        definition=ToolDefinition(
            name,
            title=UNSET if name == function.id else function.id,
            description=function.description or UNSET,
            input_schema=schema,
            output_schema=UNSET if returns is None else returns,
            meta=meta,
        ),
        handler=build_handler(function),
        is_async=True,
        arguments=OPEN if schema == OPEN.schema else _Form(function.id, schema),
        owner=None if function.owner is None else function.owner.owner,
        metadata=Metadata(
            hidden=metadata.get("internal") is True,
            category=CATEGORY,
            aliases=() if name == function.id else (function.id,),
        ),
        priority=Priority.WORKER,
    )
    if returns is None:
        return tool
    try:
        return replace(tool, output=Validator(returns))
    except DefinitionError:
        return replace(tool, definition=msgspec.structs.replace(tool.definition, output_schema=UNSET))


def _schemas(function: Function) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What clients are told of the arguments and the answer of a function, as far as they can use it."""
    schema, returns = input_schema(function.request_format), output_schema(function.response_format)
    problem = find_schema_problem(schema)
    if problem is not None:
        complain = _log.warning if function.owner is None else function.owner.complain
        complain("the arguments of %s are not checked: its schema cannot be used: %s", function.id, problem)
        schema = open_schema(schema)
    return schema, None if returns is None or find_schema_problem(returns) is not None else returns
