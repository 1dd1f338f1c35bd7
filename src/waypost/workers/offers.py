"""Functions as capabilities: how the pipeline runs them, and the tools that agents see of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.naming import is_wire_name, portable, told_apart
from waypost.capabilities.registry import Registry
from waypost.capabilities.schemas.forms import OPEN, require
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError, InvocationFailed
from waypost.wire.definitions import ToolDefinition
from waypost.workers.formats import input_schema, output_schema
from waypost.workers.frames import encode
from waypost.workers.functions import DEFAULT, Call, Function, is_internal

_log: Final = logging.getLogger(__name__)
CATEGORY: Final = "Workers"


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


def runner(function: Function) -> Handler:
    """How the pipeline runs a function: calls of workers pass through as they are, others are put into words for it."""

    async def run(given: Any, ctx: Context) -> Any:
        start = function.run if function.watch is None else function.watch.run
        if type(given) is Call:
            if function.owner is None:
                given.caller = ctx.caller
            return await start(given)
        key = ctx.idempotency_key
        metadata = Raw(encode({"idempotencyKey": key})) if key else UNSET
        answer = await start(Call(function.id, Raw(encode(given)), metadata, caller=ctx.caller))
        try:
            return msgspec.json.decode(answer)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvocationFailed(f"The answer of {function.id} cannot be read: {error}.") from None

    return run


def inner(function: Function) -> Capability:
    """What stands for a function that is nobody's tool."""
    return Capability(
        kind=Kind.TOOL,
        id=function.id,
        definition=ToolDefinition(function.id),
        handler=runner(function),
        is_async=True,
        arguments=OPEN,
        hidden=True,
        owner="hub",
    )


class Offers:
    """The tools of one registry that are functions."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def exchange(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Take functions back and offer others, seen from outside as one change."""
        leaving = [one.capability for one in old if one.capability is not None and not is_internal(one.id)]
        gone = {capability.id for capability in leaving}
        arriving: dict[str, Capability] = {}
        for function in new:
            if is_internal(function.id):
                function.capability = inner(function)
                continue
            name = self._free(function, gone, arriving)
            function.capability = arriving[name] = _tool(function, name)
        self._registry.replace(leaving, arriving.values())

    def _free(self, function: Function, gone: set[str], arriving: dict[str, Capability]) -> str:
        """The name of a function as a tool, another one where that is somebody else's."""
        plain = name = tool_name(function.id)
        attempt = 0
        while name in arriving or (name not in gone and name in self._registry.tools):
            name = told_apart(f"{function.namespace}/{function.id}", plain, attempt)
            attempt += 1
        return name


def find(registry: Registry, function_id: str, namespace: str = DEFAULT) -> Capability | None:
    """The tool that is a function, whatever it had to be called."""
    plain = name = tool_name(function_id)
    attempt = 0
    while (found := registry.tools.get(name)) is not None:
        if found.category == CATEGORY and (found.definition.title or found.id) == function_id:
            return found
        name = told_apart(f"{namespace}/{function_id}", plain, attempt)
        attempt += 1
    return None


def tool_name(function_id: str) -> str:
    """A function's id as the name of a tool: `a::b` is `a__b`."""
    name = function_id.replace("::", "__")
    return name if is_wire_name(name) else portable(name) or "function"


def _tool(function: Function, name: str) -> Capability:
    schema, returns = input_schema(function.request_format), output_schema(function.response_format)
    metadata = function.metadata if isinstance(function.metadata, dict) else {}
    meta: dict[str, Any] = {"category": CATEGORY}
    if function.namespace != DEFAULT:
        meta["waypost/namespace"] = function.namespace
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
        handler=runner(function),
        is_async=True,
        arguments=_Form(function.id, schema),
        hidden=metadata.get("internal") is True,
        owner=None if function.owner is None else function.owner.owner,
        category=CATEGORY,
        aliases=() if name == function.id else (function.id,),
    )
    if returns is None:
        return tool
    try:
        return replace(tool, output=Validator(returns))
    except DefinitionError:
        return replace(tool, definition=msgspec.structs.replace(tool.definition, output_schema=UNSET))
