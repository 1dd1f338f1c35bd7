"""Functions as capabilities: how the pipeline runs them, and which tools agents see of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.capability import Capability, Kind, Priority
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.names import disambiguate, is_wire_name, to_portable
from waypost.capabilities.options import Metadata
from waypost.capabilities.registry import PREFIXES, Offer, Registry
from waypost.capabilities.schemas.forms import OPEN, require
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.wire.definitions import ToolDefinition
from waypost.workers.frames import encode
from waypost.workers.functions import DEFAULT, Call, Function, is_internal, trace_here
from waypost.workers.schemas import find_schema_problem, input_schema, open_schema, output_schema

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
