"""How classes and functions become capabilities: components, whose fields are arguments, and the shape of functions."""

from __future__ import annotations

import enum
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Options, check_name, name_in_errors, parse_options, snake_case
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.schemas import signatures
from waypost.capabilities.schemas.forms import OPEN, Arguments, OpenForm, RawForm
from waypost.capabilities.schemas.signatures import underlying
from waypost.errors import DefinitionError


class Body(msgspec.Struct, frozen=True):
    """What runs for a prompt or resource, and what it takes."""

    arguments: Arguments
    handler: Handler
    arity: int
    is_async: bool
    description: str | None
    owner: str | None = None


class Component:
    """The base of tools, resources and prompts that are written as classes."""

    _entry: ClassVar[str]
    _options_type: ClassVar[type[Options]] = Options
    _given: ClassVar[dict[str, Any]] = {}
    _options: ClassVar[Options]
    _fields: ClassVar[tuple[tuple[str, Any, Any], ...]] = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__()
        # `Tool`, `Resource` and `Prompt` themselves declare nothing.
        if Component in cls.__bases__:
            return
        subject = cls.subject()
        cls._given = {key: value for key, value in cls._given.items() if key != "name"} | given
        cls._options = parse_options(cls._given, subject, cls._options_type)
        cls._fields = name_in_errors(subject, lambda: tuple(_fields(cls)))
        # Built once and thrown away: a mistake is reported where the class is written, not where it is registered.
        if hasattr(cls, cls._entry):
            name_in_errors(subject, lambda: object.__new__(cls)._capability())

    def __init__(self, **fields: Any) -> None:
        known = {name for name, _, _ in self._fields}
        for name in fields:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        self.__dict__.update(fields)

    @classmethod
    def subject(cls) -> str:
        """How error messages call it: its kind and class name."""
        # The last two are `Component` and `object`, so this is `Tool`, `Resource` or `Prompt`.
        return f"{cls.__mro__[-3].__name__} {cls.__name__}"

    @classmethod
    def component_name(cls) -> str:
        """The name it is registered under: the option, else the class name in snake_case."""
        return check_name(snake_case(cls.__name__)) if cls._options.name is UNSET else cls._options.name

    def capabilities(self) -> list[Capability]:
        """A list of one: the capability this component is."""
        if not hasattr(self, self._entry):
            raise DefinitionError(f"{self.subject()} has no {self._entry}() method.")
        return [self._capability()]

    def _capability(self) -> Capability:
        raise NotImplementedError

    def _filled(self, values: Mapping[str, Any], attributes: Collection[str] | None) -> Self:
        # Calls run at the same time, each with its own arguments as attributes. A class may have an `__init__` of its
        # own, which is for the program that registers it and not for calls.
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        if attributes is not None:
            values = {name: value for name, value in values.items() if name in attributes}
        copy.__dict__.update(values)
        return copy

    def _attributes(self, arguments: Arguments) -> Collection[str] | None:
        """The names of the arguments that become attributes; `None` for all that are admitted.

        Undeclared ones never do: a caller could replace what the program keeps in the instance.
        """
        if isinstance(arguments, (OpenForm, RawForm)):
            return frozenset(arguments.schema.get("properties", ()))
        return None

    def _arguments(self) -> Arguments:
        return signatures.from_fields(type(self).__name__, list(self._fields)) if self._fields else OPEN

    def _handler(self, arguments: Arguments) -> tuple[Handler, int]:
        """The handler: it fills in the fields of a copy, then calls the entry with as many arguments as it takes."""
        entry = getattr(type(self), self._entry)
        attributes = self._attributes(arguments)
        arity = len(inspect.signature(entry).parameters) - 1
        if arity == 0:
            return lambda values, _: entry(self._filled(values, attributes)), arity
        if arity == 1:
            return lambda values, ctx: entry(self._filled(values, attributes), ctx), arity
        if arity == 2:
            return lambda values, ctx: entry(self._filled(values, attributes), values, ctx), arity
        raise DefinitionError(f"{self._entry}() takes at most (self, args, ctx).")

    def _body(self) -> Body:
        cls = type(self)
        arguments = self._arguments()
        handler, arity = self._handler(arguments)
        description = description_of(cls, cls._options)
        return Body(arguments, handler, arity, is_async(getattr(cls, self._entry)), description, cls.__name__)


def _fields(cls: type[Component]) -> list[tuple[str, Any, Any]]:
    """The fields of a component: name, annotation and default."""
    try:
        known = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise DefinitionError(f"the annotation {error.name!r} cannot be resolved; import it for real.") from None
    names = [
        name
        for base in reversed(cls.__mro__)
        if issubclass(base, Component) and base is not Component and Component not in base.__bases__
        for name in inspect.get_annotations(base)
    ]
    return [
        (name, known[name], getattr(cls, name, signatures.MISSING))
        for name in dict.fromkeys(names)
        if typing.get_origin(known[name]) is not ClassVar and not name.startswith("_")
    ]


def list_choices(annotation: Any) -> tuple[str, ...]:
    """The values a `Literal` or `Enum` field can take, to offer as completions."""
    if typing.get_origin(annotation) is typing.Annotated:
        return list_choices(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) is Literal:
        return tuple(str(value) for value in typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return tuple(str(member.value) for member in annotation)
    return ()


class TextArguments:
    """Arguments of prompts and resource templates, which MCP sends as text; fields of other types are decoded."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        properties: Mapping[str, Any] = arguments.schema.get("properties", {})
        known: Mapping[str, Any] = arguments.schema.get("$defs", {})
        self._texts = frozenset(name for name, part in properties.items() if _takes_text(part, known))
        self.schema = arguments.schema
        self.cast_plan = arguments.cast_plan

    def admit(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Decode the values of fields that are not text, then check all of them."""
        return self._arguments.admit(
            {name: value if name in self._texts else _read(value) for name, value in arguments.items()}
        )


def _takes_text(part: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether text is a valid value of a field."""
    if "$ref" in part:
        return _takes_text(known.get(part["$ref"].rpartition("/")[2], {}), known)
    if any(_takes_text(option, known) for option in part.get("anyOf", ())):
        return True
    kind = part.get("type", ())
    return kind == "string" or "string" in kind or any(isinstance(value, str) for value in part.get("enum", ()))


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


MAX_ARITY: Final = 2
"""Handlers take at most the arguments and the context."""


class Shape(msgspec.Struct, frozen=True):
    """How a function is called: with `args` and `ctx` by position, or with its own parameters by name."""

    by_name: bool
    arity: int
    context_parameter: str | None
    arguments: Arguments
    returns: Any

    def handler(self, function: Callable[..., Any]) -> Handler:
        """The function behind the one signature that the pipeline calls."""
        parameter = self.context_parameter
        if self.by_name and parameter is not None:
            if self.arguments is OPEN:  # it declares no arguments, and clients may send some all the same
                return lambda _, ctx: function(**{parameter: ctx})
            return lambda arguments, ctx: function(**arguments, **{parameter: ctx})
        if self.by_name:
            return lambda arguments, _: function(**arguments)
        if self.arity == 0:
            return lambda _args, _ctx: function()
        return (lambda args, _: function(args)) if self.arity == 1 else function

    def body(self, function: Callable[..., Any], options: Options) -> Body:
        """The function as the body of a prompt or resource."""
        description = description_of(function, options)
        return Body(self.arguments, self.handler(function), self.arity, is_async(function), description)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling `function` returns a coroutine."""
    function = unwrap_partial(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def unwrap_partial(function: Any) -> Any:
    """The function inside of partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def resolve_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function; `Context` is resolved even when it was imported for type checkers only."""
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
    """How `function` is called; with `declared` arguments it takes `args` and `ctx` by position."""
    everything = list(inspect.signature(function).parameters.values())
    parameters = everything[1:] if skip_self else everything
    if starred := [
        f"{p.replace(annotation=p.empty)}" for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]:
        raise DefinitionError(f"{' and '.join(starred)} cannot be arguments; name them")
    known = resolve_hints(function)
    returned = known.get("return", inspect.Signature.empty)
    if declared is not None or not any(parameter.name in known for parameter in parameters):
        return Shape(False, _count_positional(parameters), None, declared or OPEN, returned)
    # Other frameworks write it with a default, `ctx: Context | None = None`; here it is always given.
    context_parameter = next((p.name for p in parameters if known.get(p.name) in (Context, Context | None)), None)
    own = {p.name for p in parameters} - {context_parameter}
    skip = frozenset(p.name for p in everything if p.name not in own)
    arguments = signatures.from_function(function, skip) if own else OPEN
    return Shape(True, MAX_ARITY, context_parameter, arguments, returned)


def _count_positional(parameters: list[inspect.Parameter]) -> int:
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required_keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(positional) > MAX_ARITY or required_keywords:
        raise DefinitionError("takes at most two parameters, (args, ctx), when its input is declared or unannotated")
    return len(positional)


def description_of(subject: object, options: Options) -> str | None:
    """The description of `subject`: the option, else its docstring."""
    if options.description is not None:
        return options.description
    if isinstance(subject, type):  # its own: that of a base class describes something else
        return inspect.cleandoc(subject.__dict__.get("__doc__") or "") or None
    return inspect.getdoc(unwrap_partial(subject)) or None
