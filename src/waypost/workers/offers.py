"""Functions as capabilities: how the pipeline runs them, and which tools agents see of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from waypost.capabilities.capability import Capability, IsTaken, Kind, Yields
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.names import disambiguate, is_wire_name, to_portable
from waypost.capabilities.options import Metadata
from waypost.capabilities.registry import PREFIXES, Registry
from waypost.capabilities.schemas.forms import OPEN, require
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.wire.definitions import ToolDefinition
from waypost.workers.frames import encode
from waypost.workers.functions import DEFAULT, Call, Function, is_internal, trace_here
from waypost.workers.schemas import input_schema, open_schema, output_schema, unusable


class Aside:
    """Who waits for which name; of several with equal right, whoever has waited longest is the next."""

    def __init__(self, is_guest: Callable[[Function], bool]) -> None:
        self._is_guest = is_guest
        self._at: dict[str, dict[Function, None]] = {}

    def __len__(self) -> int:
        """How many names are waited for."""
        return len(self._at)

    def put(self, name: str, function: Function) -> None:
        """A function waits for its name; it keeps its place when that is said again."""
        self._at.setdefault(name, {})[function] = None

    def pop(self, name: str, function: Function) -> None:
        """A function waits no longer: it has its name, or is gone."""
        waiting = self._at.get(name)
        if waiting is None or function not in waiting:
            return
        del waiting[function]
        if not waiting:
            del self._at[name]

    def next(self) -> Iterator[tuple[str, Function]]:
        """Every name that is waited for, and whose it is when it is free: its owner's, else a guest's."""
        for name, waiting in list(self._at.items()):
            yield name, min(waiting, key=self._is_guest)


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
        return await start(Call(function.id, Raw(encode(given)), metadata, *trace_here(), caller=ctx.caller))

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
        owner="hub",
        metadata=Metadata(hidden=True),
    )


class Offers:
    """The tools of one registry that are functions.

    A name belongs to the function of the default namespace that is spelled like it. Others have it as guests: they make
    room when the owner comes, so that who is called what does not depend on who came first. Whoever has another name
    because its own is taken gets that when it is free.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._guests: dict[str, Function] = {}
        self._aside = Aside(_is_guest)
        registry.settle(self._return)

    def exchange(self, old: Iterable[Function], new: Iterable[Function]) -> None:
        """Take functions back and offer others, seen from outside as one change."""
        old, new = list(old), list(new)
        leaving = [one.capability for one in old if one.capability is not None and not is_internal(one.id)]
        gone = {capability.id for capability in leaving}
        arriving: dict[str, Capability] = {}
        offered = [one for one in new if not is_internal(one.id)]
        offered.sort(key=_is_guest)
        self._forget(set(old).difference(new))
        moving = self._make_room(old, offered)
        leaving += [one.capability for one in moving if one.capability is not None]
        gone.update(one.capability.id for one in moving if one.capability is not None)

        def is_taken(name: str) -> bool:
            return name in arriving or self._is_taken(name, gone)

        for function in new:
            if is_internal(function.id):
                function.capability = inner(function)
        for function in offered:
            tool = self._offer(function, is_taken)
            arriving[tool.id] = tool
        for function in moving:
            tool = self._move(function, is_taken)
            arriving[tool.id] = tool
        self._registry.replace(leaving, arriving.values())

    def _make_room(self, old: Iterable[Function], offered: Iterable[Function]) -> list[Function]:
        """The guests whose names belong to functions that are offered now."""
        if not self._guests:
            return []
        for function in old:
            name = tool_name(function.id)
            if self._guests.get(name) is function:
                del self._guests[name]
        names = [tool_name(function.id) for function in offered if not _is_guest(function)]
        found = ((name, self._guests.pop(name)) for name in names if name in self._guests)
        return [guest for name, guest in found if guest.capability is not None and guest.capability.id == name]

    def _forget(self, functions: Iterable[Function]) -> None:
        if self._aside:
            for function in functions:
                self._aside.pop(tool_name(function.id), function)

    def _is_taken(self, name: str, gone: Container[str] = ()) -> bool:
        """Whether somebody has a name and is not about to leave it, nor makes room."""
        found = self._registry.find_tool(name)
        return found is not None and found.id not in gone and (found.id == name or found.yields is None)

    def _offer(self, function: Function, is_taken: IsTaken) -> Capability:
        """A function as a tool, under another name than its own where that is somebody else's."""
        plain = name = tool_name(function.id)
        attempt = 0
        while is_taken(name):
            name = disambiguate(f"{function.namespace}/{function.id}", plain, attempt)
            attempt += 1
        if name != plain:
            self._aside.put(plain, function)
        else:
            self._aside.pop(plain, function)
            if _is_guest(function):
                self._guests[plain] = function
        function.capability = _tool(function, name, partial(self._move, function))
        return function.capability

    def _move(self, function: Function, is_taken: IsTaken) -> Capability:
        """A function as another tool, because its name is now somebody's who does not yield."""
        moved = self._offer(function, is_taken)
        _log.warning("the function %s is the tool %s now: its name was given to another", function.id, moved.id)
        return moved

    def _return(self) -> None:
        """Give names that are free now to whoever waits for them."""
        if not self._aside:
            return
        back = [function for name, function in self._aside.next() if not self._is_taken(name)]
        leaving = [function.capability for function in back if function.capability is not None]
        arriving = [self._offer(function, self._is_taken) for function in back]
        for function, tool in zip(back, arriving, strict=True):
            _log.info("the function %s is the tool %s again: its name is free", function.id, tool.id)
        self._registry.replace(leaving, arriving)


def _is_guest(function: Function) -> bool:
    """Whether the name of a function as a tool belongs to another, be there one or not."""
    return function.namespace != DEFAULT or tool_name(function.id).replace("__", "::") != function.id


def find(registry: Registry, function_id: str, namespace: str = DEFAULT) -> Capability | None:
    """The tool that is a function, whatever it had to be called."""
    plain = tool_name(function_id)
    found, attempt = registry.tools.get(plain), 0
    while found is None or not _stands_for(found, function_id, namespace):
        found = registry.tools.get(disambiguate(f"{namespace}/{function_id}", plain, attempt))
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


def _tool(function: Function, name: str, yields: Yields) -> Capability:
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
        handler=runner(function),
        is_async=True,
        arguments=OPEN if schema == OPEN.schema else _Form(function.id, schema),
        owner=None if function.owner is None else function.owner.owner,
        metadata=Metadata(
            hidden=metadata.get("internal") is True,
            category=CATEGORY,
            aliases=() if name == function.id else (function.id,),
        ),
        yields=yields,
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
    problem = unusable(schema)
    if problem is not None:
        complain = _log.warning if function.owner is None else function.owner.complain
        complain("the arguments of %s are not checked: its schema cannot be used: %s", function.id, problem)
        schema = open_schema(schema)
    return schema, None if returns is None or unusable(returns) is not None else returns
