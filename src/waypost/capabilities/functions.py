"""From a Python function to a tool: how it is called, what it takes, what it gives."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.headers import header_parameters
from waypost.capabilities.naming import check_name
from waypost.capabilities.options import Options, ToolOptions, named, wire_annotations
from waypost.capabilities.results import Result
from waypost.capabilities.schemas import forms, signatures
from waypost.capabilities.schemas.forms import OPEN, Arguments
from waypost.capabilities.schemas.hints import underlying
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.wire.content import CONTENT_TYPES
from waypost.wire.definitions import ToolDefinition, ToolExecution

MAX_ARITY: Final = 2
_OPAQUE: Final = (Result, *CONTENT_TYPES)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a function wants to be called: with `args` and `ctx` by position, or with its own parameters by name."""

    by_name: bool
    arity: int
    context_parameter: str | None
    arguments: Arguments
    returns: Any

    def handler(self, function: Callable[..., Any]) -> Handler:
        """The function behind the one signature the pipeline calls."""
        if self.by_name:
            return _by_name(function, self.context_parameter)
        return _by_position(function, self.arity)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A tool and how its function is called."""

    capability: Capability
    shape: Shape

    def bound(self, function: Callable[..., Any]) -> Capability:
        """The tool around `function`, a bound method."""
        return replace(self.capability, handler=self.shape.handler(function))


def _by_name(function: Callable[..., Any], context_parameter: str | None) -> Handler:
    if context_parameter is None:
        return lambda arguments, _: function(**arguments)
    return lambda arguments, ctx: function(**arguments, **{context_parameter: ctx})


def _by_position(function: Callable[..., Any], arity: int) -> Handler:
    if arity == 0:
        return lambda _args, _ctx: function()
    return (lambda args, _: function(args)) if arity == 1 else function


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling `function` gives a coroutine."""
    function = _whole(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _whole(function: Any) -> Any:
    """What a partial is a part of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolved type hints; `Context` is found even when it was imported for type checkers only."""
    function = underlying(function)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        try:
            return typing.get_type_hints(function, localns={"Context": Context}, include_extras=True)
        except NameError as error:
            raise DefinitionError(
                f"the annotation {error.name!r} cannot be resolved at run time; import it for real"
            ) from None


def inspect_shape(function: Callable[..., Any], *, declared: Arguments | None, skip_self: bool) -> Shape:
    """Work out how `function` is called; `declared` arguments make it take `args` and `ctx` by position."""
    everything = list(inspect.signature(function).parameters.values())
    parameters = everything[1:] if skip_self else everything
    if starred := [
        f"{p.replace(annotation=p.empty)}" for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]:
        raise DefinitionError(f"{' and '.join(starred)} cannot be arguments; name them")
    known = hints(function)
    returned = known.get("return", inspect.Signature.empty)
    if declared is not None or not any(parameter.name in known for parameter in parameters):
        return Shape(False, _arity(parameters), None, declared or OPEN, returned)
    context_parameter = next((p.name for p in parameters if known.get(p.name) is Context), None)
    own = {p.name for p in parameters} - {context_parameter}
    skip = frozenset(p.name for p in everything if p.name not in own)
    arguments = signatures.from_function(function, skip) if own else OPEN
    return Shape(True, MAX_ARITY, context_parameter, arguments, returned)


def _arity(parameters: list[inspect.Parameter]) -> int:
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required_keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(positional) > MAX_ARITY or required_keywords:
        raise DefinitionError("takes at most two parameters, (args, ctx), when its input is declared or unannotated")
    return len(positional)


def declared_input(options: ToolOptions) -> Arguments | None:
    """The input the options declare; `input_schema` is asked before `input`."""
    if options.input_schema is not UNSET:
        return forms.declared(options.input_schema, raw=True)
    return None if options.input is UNSET else forms.declared(options.input, raw=False)


def declared_output(options: ToolOptions) -> Validator | None:
    """The output schema the options declare; `output_schema` is asked before `output`."""
    if options.output_schema is not UNSET:
        return forms.output(options.output_schema, raw=True)
    return None if options.output is UNSET else forms.output(options.output, raw=False)


def description_of(subject: object, options: Options) -> str | None:
    """What is said about `subject`: the option, else its docstring."""
    if options.description is not None:
        return options.description
    doc = (
        inspect.getdoc(_whole(subject))
        if not isinstance(subject, type)
        else inspect.cleandoc(subject.__dict__.get("__doc__") or "")
    )
    return doc or None


def tool_from_function(
    function: Callable[..., Any],
    options: ToolOptions,
    *,
    default_category: str | None = None,
    owner: str | None = None,
    in_class: bool = False,
) -> Blueprint:
    """The tool that `function` is; one found in a class has yet to be bound to an instance."""
    whole = _whole(function)
    raw_name = getattr(whole, "__name__", type(whole).__name__)
    name = raw_name if options.name is UNSET else options.name
    subject = f"Tool {name!r}"
    if not callable(function):
        raise DefinitionError(f"{subject}: @tool needs a function, not a {type(function).__name__}.")
    if raw_name.startswith("_") and raw_name != "__call__":
        raise DefinitionError(f"{subject}: the function {raw_name} is private; make it public to publish it.")

    def build() -> Blueprint:
        shape = inspect_shape(function, declared=declared_input(options), skip_self=in_class)
        output = declared_output(options) or derived_output(shape.returns)
        capability = make_tool(
            check_name(name),
            options,
            arguments=shape.arguments,
            output=output,
            returns=bare_type(options, shape.returns),
            handler=shape.handler(function),
            arity=shape.arity,
            asynchronous=is_async(function),
            description=description_of(function, options),
            default_category=default_category,
            owner=owner,
        )
        return Blueprint(capability, shape)

    blueprint: Blueprint = named(subject, build)
    return blueprint


def derived_output(returns: Any) -> Validator | None:
    """The output check that a return annotation promises, if it promises one."""
    described = None if returns is inspect.Signature.empty else signatures.returns(returns, opaque=_OPAQUE)
    return None if described is None else Validator.deferred(described.schema)


def bare_type(options: ToolOptions, returns: Any) -> type | None:
    """The plain type a function promises to return, whose values fit the schema derived from it by themselves."""
    declared = options.output is not UNSET or options.output_schema is not UNSET
    return returns if not declared and returns in (bool, int, float) else None


def make_tool(
    name: str,
    options: ToolOptions,
    *,
    arguments: Arguments,
    output: Validator | None,
    handler: Handler,
    arity: int,
    asynchronous: bool,
    description: str | None,
    default_category: str | None = None,
    owner: str | None = None,
    returns: type | None = None,
) -> Capability:
    """Put a tool together from its checked parts."""
    return Capability(
        kind=Kind.TOOL,
        id=name,
        definition=ToolDefinition(
            name,
            input_schema=arguments.schema,
            output_schema=UNSET if output is None else output.schema,
            annotations=wire_annotations(options.annotations, f"Tool {name!r}"),
            execution=UNSET if options.task == "forbidden" else ToolExecution(options.task),
            **options.definition(description, default_category),
        ),
        handler=handler,
        is_async=asynchronous,
        arity=arity,
        arguments=arguments,
        output=output,
        returns=returns,
        owner=owner,
        task=options.task,
        headers=header_parameters(arguments.schema),
        **options.traits(default_category),
    )
