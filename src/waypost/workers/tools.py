"""Functions as tools: their schemas, the capabilities that the pipeline runs, and what the registry shows of them.

Some clients drop the whole list of tools over one bad schema, so every schema is checked before it is published. Nearly
all schemas use a few plain keywords, which a quick look recognises; only others are compiled, which is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from msgspec import UNSET, Raw

from waypost.capabilities.capability import (
    Capability,
    Kind,
    Metadata,
    Priority,
    disambiguate,
    is_wire_name,
    to_portable,
)
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.registry import PREFIXES, Offer, Registry
from waypost.capabilities.schemas.forms import OPEN, require
from waypost.capabilities.schemas.validators import MULTIPLYING, Validator, check_limits
from waypost.errors import DefinitionError, InvalidArguments, InvocationFailed, text_of
from waypost.loops import KeyLocks, running_loop
from waypost.wire.definitions import ToolDefinition
from waypost.workers.frames import LARGE_MESSAGE_BYTES, RegisterFunction, encode, read_parts
from waypost.workers.functions import DEFAULT, Call, Function, is_internal, read_large_payload, trace_here

_log: Final = logging.getLogger(__name__)
CATEGORY: Final = "Workers"
_NAMESPACE: Final = "waypost/namespace"
MAX_SCHEMA_DEPTH: Final = 32
_MAX_JSON_DEPTH: Final = 2 * MAX_SCHEMA_DEPTH + 2
"""Levels of JSON in nested schemas: each schema stands in the `properties` of the one around it."""
_TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_DRAFTS: Final = frozenset(
    (
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
_DEFINITIONS: Final = ("$defs", "definitions")
_FUNCTIONS_PER_TURN: Final = 100
_BYTES_PER_TURN: Final = 64 * 1024
"""Functions that are larger in all are published in several turns."""
_SLOW_BYTES: Final = 16 * 1024
"""Schemas up to this size are compiled at the first call, in the time of that call."""
_SIMPLE_BYTES: Final = 2 * 1024
"""The same for schemas whose cost may exceed their size."""


def find_schema_problem(schema: dict[str, Any]) -> str | None:
    """Why a schema cannot be used; nothing if it can."""
    if not _is_shallow(schema, _MAX_JSON_DEPTH):
        return f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels"
    try:
        check_limits(schema)
        if not _is_plain(schema, _MAX_JSON_DEPTH, schema):
            Validator(schema)
    except DefinitionError as error:
        return error.message
    return None


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in value if isinstance(one, dict | list))


def _is_plain(schema: Any, levels: int, root: dict[str, Any]) -> bool:
    """Whether a schema has only keywords and values that are valid at a look, without compiling it."""
    if type(schema) is bool:
        return True
    if type(schema) is not dict or levels <= 0:
        return False
    for keyword, value in schema.items():
        check = _PLAIN_VALUES.get(keyword)
        if not (_is_plain_part(keyword, value, levels, root) if check is None else check(value)):
            return False
    return True


def _is_plain_part(keyword: str, value: Any, levels: int, root: dict[str, Any]) -> bool:
    if keyword in ("properties", *_DEFINITIONS):
        return type(value) is dict and all(_is_plain(one, levels - 2, root) for one in value.values())
    if keyword in ("items", "additionalProperties"):
        return _is_plain(value, levels - 1, root)
    if keyword in ("anyOf", "oneOf", "allOf"):
        return type(value) is list and bool(value) and all(_is_plain(one, levels - 2, root) for one in value)
    if keyword in ("default", "const"):
        return _is_shallow(value, levels - 1)
    if keyword in ("enum", "examples"):
        return type(value) is list and _is_shallow(value, levels - 1)
    return keyword == "$ref" and type(value) is str and _is_local(value, root)


def _is_local(reference: str, root: dict[str, Any]) -> bool:
    """Whether a reference leads to one of the definitions of the same schema."""
    start, _, rest = reference.partition("/")
    place, _, name = rest.partition("/")
    found = root.get(place) if start == "#" and place in _DEFINITIONS else None
    return type(found) is dict and name in found and not set(name) & set("~%/")


def _is_text(value: Any) -> bool:
    return type(value) is str


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(map(_is_text, value)) and len(value) == len(set(value))


def _is_type(value: Any) -> bool:
    if type(value) is str:
        return value in _TYPES
    return _are_texts(value) and bool(value) and _TYPES.issuperset(value)


@lru_cache(maxsize=1024)
def _is_pattern(pattern: str) -> bool:
    try:
        Validator({"pattern": pattern})
    except DefinitionError:
        return False
    return True


_PLAIN_VALUES: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "required": _are_texts,
    "pattern": lambda value: _is_text(value) and _is_pattern(value),
    "$schema": lambda value: _is_text(value) and value in _DRAFTS,
    **dict.fromkeys(("title", "description", "format", "$comment"), _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), lambda value: type(value) is bool),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), lambda value: type(value) in (int, float)
    ),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        lambda value: type(value) is int and value >= 0,
    ),
}


def input_schema(request_format: Any) -> dict[str, Any]:
    """The schema of a function's arguments; any object where the format says nothing usable."""
    schema = _to_schema(request_format)
    kind = None if schema is None else schema.get("type", "object")
    if schema is None or not (kind == "object" or (isinstance(kind, list) and "object" in kind)):
        return {"type": "object"}
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def output_schema(response_format: Any) -> dict[str, Any] | None:
    """The schema of a function's answer, where that is an object."""
    schema = _to_schema(response_format)
    return schema if schema is not None and schema.get("type") == "object" else None


def _to_schema(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, Mapping):
        return None
    # The older form is a tree of named fields, each with a type.
    if isinstance(given.get("name"), str) and isinstance(given.get("type"), str) and "properties" not in given:
        return _from_field(given, 0)
    schema = dict(given)
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return None
    if not all(isinstance(one, (Mapping, bool)) for one in properties.values()):
        return None
    if properties:  # some clients fail on booleans in place of schemas
        schema["properties"] = {name: {} if one is True else one for name, one in properties.items()}
    return schema


def _from_field(field: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kind = "object" if field.get("type") == "map" else field.get("type")
    schema: dict[str, Any] = {"type": kind} if _is_text(kind) and kind in _TYPES else {}
    if isinstance(field.get("description"), str):
        schema["description"] = field["description"]
    body, items = field.get("body"), field.get("items")
    if depth < MAX_SCHEMA_DEPTH and isinstance(body, list):
        fields = [one for one in body if isinstance(one, Mapping) and isinstance(one.get("name"), str)]
        schema["properties"] = {one["name"]: _from_field(one, depth + 1) for one in fields}
        required = [one["name"] for one in fields if one.get("required")]
        if required:
            schema["required"] = required
    if depth < MAX_SCHEMA_DEPTH and isinstance(items, Mapping):
        schema["items"] = _from_field(items, depth + 1)
    return schema


class _Arguments:
    """The arguments of a worker's function; the validator is compiled at the first call."""

    cast_plan = None

    def __init__(self, function_id: str, schema: dict[str, Any], validator: Validator | None) -> None:
        self.schema = schema
        self._id = function_id
        self._validator = validator
        self._is_ready = validator is not None

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments and return them unchanged."""
        validator = self._compile()
        if validator is not None:
            require(validator, arguments)
        return arguments

    def is_valid(self, arguments: Any) -> bool:
        """Whether the arguments fit, without the reasons; to find those takes far longer."""
        validator = self._compile()
        return validator is None or validator.is_valid(arguments)

    def _compile(self) -> Validator | None:
        # A worker may register a thousand functions of which one is called: compiling is left to the first call.
        if not self._is_ready:
            self._is_ready = True
            try:
                self._validator = Validator(self.schema)
            except DefinitionError as error:
                _log.warning("the arguments of %s are not checked: its schema cannot be used: %s", self._id, error)
        return self._validator


_explaining: Final = KeyLocks()
"""Held for a worker while the reasons are sought why a payload does not fit: one search for it in a turn."""


def build_handler(function: Function, arguments: _Arguments | None = None) -> Handler:
    """The handler for the pipeline: a worker's call is passed on, arguments of others become a call.

    The payload of a call that a worker makes is checked too, where a worker's function declares a schema. Events of
    triggers and observers are not: what these send is not up to the function.
    """

    async def run(given: Any, ctx: Context) -> Any:
        start = function.run if function.watch is None else function.watch.run
        if type(given) is Call:
            given.caller = ctx.caller
            if arguments is not None and function.owner is not None and given.sender and given.activation is None:
                is_large = len(given.data) >= LARGE_MESSAGE_BYTES
                await _check_payload(await read_large_payload(given) if is_large else given.payload(), given, arguments)
            return await start(given)
        key = ctx.idempotency_key
        metadata = Raw(encode({"idempotencyKey": key})) if key else UNSET
        return await start(Call(function.id, Raw(encode(given)), metadata, *trace_here(), caller=ctx.caller))

    return run


async def _check_payload(payload: Any, call: Call, arguments: _Arguments) -> None:
    payload = {} if payload is None else payload
    try:
        if arguments.is_valid(payload):
            return
        async with _explaining[call.sender]:
            await asyncio.sleep(0)
            arguments.admit(payload)
    except (RecursionError, InvalidArguments) as error:
        raise InvocationFailed(f"The payload does not fit: {text_of(error)}") from None


def has_own_name(function: Function) -> bool:
    """Whether the name of a function as a tool translates back to its id.

    `a::b` and `a__b` are both published as `a__b`. Of functions that are registered together, the one that the name
    translates back to gets it; the others get a suffix.
    """
    return (DEFAULT, tool_name(function.id).replace("__", "::")) == function.key


class PublishedFunctions:
    """Publishes the functions of workers and of the hub in a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def replace(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Withdraw functions and offer others; clients see one change."""
        new = list(new)
        kept = {function.key for function in new}
        with self._registry.as_one_change():
            for function in old:
                if function.key not in kept and not is_internal(function.id):
                    self._registry.offer(_source(function.id, function.namespace), (), Priority.WORKER)
                # Its capability refers to it: together they would wait for the garbage collector, with their schemas.
                function.offer = None
            for function in sorted(new, key=has_own_name, reverse=True):
                if is_internal(function.id):
                    row = _build_internal(function)
                    function.offer = Offer("", row, row)
                else:
                    source = _source(function.id, function.namespace)
                    (function.offer,) = self._registry.offer(source, [_build_tool(function)], Priority.WORKER)


def _source(function_id: str, namespace: str) -> str:
    return f"{namespace}/{function_id}"


def find_function_tool(registry: Registry, function_id: str, namespace: str = DEFAULT) -> Capability | None:
    """The tool of a function, also where its name has a suffix."""
    plain = tool_name(function_id)
    found, attempt = registry.tools.get(plain), 0
    while found is None or not _is_tool_of(found, function_id, namespace):
        found = registry.tools.get(disambiguate(_source(function_id, namespace), plain, attempt))
        if found is None:
            return None
        attempt += 1
    return found


def _is_tool_of(tool: Capability, function_id: str, namespace: str) -> bool:
    return (
        tool.metadata.category == CATEGORY
        and (tool.definition.title or tool.id) == function_id
        and (tool.definition.meta or {}).get(_NAMESPACE, DEFAULT) == namespace
    )


def tool_name(function_id: str) -> str:
    """The name of a function as a tool: `a::b` is `a__b`; the prefixes of skills and workflows are avoided."""
    name = function_id.replace("::", "__")
    if name.startswith(tuple(PREFIXES)):
        name = name.replace(":", "_", 1)
    return name if is_wire_name(name) else to_portable(name) or "function"


def _build_internal(function: Function) -> Capability:
    """The capability of a function that is not a tool."""
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


def _build_tool(function: Function) -> Capability:
    name = tool_name(function.id)
    schemas = function.schemas = function.schemas or check_schemas(function.frame)
    schema, returns = schemas.arguments, schemas.returns
    if schemas.problem is not None:
        warn = _log.warning if function.owner is None else function.owner.warn
        warn("the arguments of %s are not checked: its schema cannot be used: %s", function.id, schemas.problem)
    meta: dict[str, Any] = {"category": CATEGORY}
    if function.namespace != DEFAULT:
        meta[_NAMESPACE] = function.namespace
    arguments = None if schema == OPEN.schema else _Arguments(function.id, schema, schemas.validator)
    return Capability(
        kind=Kind.TOOL,
        id=name,
        definition=ToolDefinition(
            name,
            title=UNSET if name == function.id else function.id,
            description=function.frame.description or UNSET,
            input_schema=schema,
            output_schema=UNSET if returns is None else returns,
            meta=meta,
        ),
        handler=build_handler(function, arguments),
        is_async=True,
        arguments=arguments or OPEN,
        output=schemas.output,
        owner=None if function.owner is None else function.owner.owner,
        metadata=Metadata(
            hidden=function.is_hidden,
            category=CATEGORY,
            aliases=() if name == function.id else (function.id,),
        ),
        priority=Priority.WORKER,
    )


class Schemas(NamedTuple):
    """What is published of the formats of a function: usable schemas, or open ones in their place."""

    arguments: dict[str, Any]
    problem: str | None
    """Why the schema of the arguments is not the one that the worker sent."""
    validator: Validator | None
    """Checks the arguments; compiled at the first call where that is quick."""
    returns: dict[str, Any] | None
    output: Validator | None
    """Checks the answer, where it has a schema."""


def check_schemas(frame: RegisterFunction) -> Schemas:
    """Find out which schemas of a function can be used; see `SchemaChecker` for those that may take long."""
    request_format, response_format, _ = read_parts(frame)
    schema, returns = input_schema(request_format), output_schema(response_format)
    problem, validator, output = find_schema_problem(schema), None, None
    if problem is not None:
        description = schema.get("description")
        schema = {"type": "object"}
        if isinstance(description, str):
            schema["description"] = description
    elif _is_slow(schema):
        with suppress(DefinitionError):
            validator = Validator(schema)
    if returns is not None:
        try:
            output = Validator(returns) if find_schema_problem(returns) is None else None
        except DefinitionError:
            output = None
    return Schemas(schema, problem, validator, None if output is None else returns, output)


def _is_slow(schema: dict[str, Any]) -> bool:
    """Whether compiling a schema takes longer than a call should wait for it."""
    text = encode(schema)
    return len(text) > _SLOW_BYTES or (len(text) > _SIMPLE_BYTES and any(word in text for word in MULTIPLYING))


def in_turns(functions: Sequence[Function]) -> Iterator[Sequence[Function]]:
    """Functions in parts, each of which is published in one turn of the event loop."""
    start = size = 0
    for number, function in enumerate(functions):
        size += function.size
        if number > start and (size > _BYTES_PER_TURN or number - start == _FUNCTIONS_PER_TURN):
            yield functions[start:number]
            start, size = number, function.size
    if start < len(functions):
        yield functions[start:]


class SchemaChecker:
    """Checks the schemas of functions in a thread, while other work goes on, so that they can be published at once."""

    def __init__(self) -> None:
        # One thread for all workers: more would only take turns with the event loop more often.
        self._thread = ThreadPoolExecutor(1, "waypost-schemas")

    async def check(self, functions: Sequence[Function]) -> None:
        """Check what is not checked yet."""
        unchecked = [function for function in functions if function.schemas is None]
        if unchecked:
            await running_loop().run_in_executor(self._thread, _check_all, unchecked)

    def close(self) -> None:
        """End the thread after the check that it is at; what waits is not checked."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _check_all(functions: Sequence[Function]) -> None:
    for function in functions:
        if is_internal(function.id):
            read_parts(function.frame)
        else:
            function.schemas = check_schemas(function.frame)
