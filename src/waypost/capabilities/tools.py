"""Tools from functions, classes (`Tool`) and toolkits (`Toolkit`, `@tool`), and the expansion of what is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar, cast, overload

from msgspec import UNSET, Struct, structs

from waypost.capabilities.capability import (
    Capability,
    Kind,
    McpFeatures,
    Options,
    ToolOptions,
    check_name,
    name_in_errors,
    parse_options,
    read_header_parameters,
    resolve_hidden,
    wire_annotations,
    with_category,
)
from waypost.capabilities.components import (
    Component,
    Shape,
    description_of,
    inspect_shape,
    is_async,
    resolve_hints,
    unwrap_partial,
)
from waypost.capabilities.context import Handler
from waypost.capabilities.results import Result
from waypost.capabilities.schemas import forms, signatures
from waypost.capabilities.schemas.forms import Arguments
from waypost.capabilities.schemas.validators import Validator
from waypost.errors import DefinitionError
from waypost.wire.content import CONTENT_TYPES
from waypost.wire.definitions import ToolDefinition, ToolExecution

_OPAQUE: Final = (Result, *CONTENT_TYPES)


class Blueprint(Struct, frozen=True):
    """A tool and how its function is called."""

    capability: Capability
    shape: Shape

    def bind(self, function: Callable[..., Any]) -> Capability:
        """The tool with `function`, a bound method, as its handler."""
        return structs.replace(self.capability, handler=self.shape.handler(function))


def declared_input(options: ToolOptions) -> Arguments | None:
    """The input that the options declare; `input_schema` wins over `input`."""
    if options.input_schema is not UNSET:
        return forms.declared(options.input_schema, raw=True)
    return None if options.input is UNSET else forms.declared(options.input, raw=False)


def declared_output(options: ToolOptions) -> Validator | None:
    """The output schema that the options declare; `output_schema` wins over `output`."""
    if options.output_schema is not UNSET:
        return forms.output(options.output_schema, raw=True)
    return None if options.output is UNSET else forms.output(options.output, raw=False)


def tool_from_function(
    function: Callable[..., Any],
    options: ToolOptions,
    *,
    default_category: str | None = None,
    owner: str | None = None,
    in_class: bool = False,
) -> Blueprint:
    """The tool of a function; one of a class still has to be bound to an instance."""
    whole = unwrap_partial(function)
    raw_name = getattr(whole, "__name__", type(whole).__name__)
    name = raw_name if options.name is UNSET else options.name
    subject = f"Tool {name!r}"
    if not callable(function):
        raise DefinitionError(f"@tool needs a function, not a {type(function).__name__}.", subject=subject)
    if raw_name.startswith("_") and raw_name != "__call__":
        raise DefinitionError(f"the function {raw_name} is private; make it public to publish it.", subject=subject)

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

    blueprint: Blueprint = name_in_errors(subject, build)
    return blueprint


def derived_output(returns: Any) -> Validator | None:
    """The output check that follows from a return annotation, if any."""
    described = None if returns is inspect.Signature.empty else signatures.returns(returns, opaque=_OPAQUE)
    return None if described is None else Validator.deferred(described.schema)


def bare_type(options: ToolOptions, returns: Any) -> type | None:
    """The return type, if its values always match the derived schema, so that the pipeline can skip the check."""
    declared = options.output is not UNSET or options.output_schema is not UNSET
    return returns if not declared and returns in (bool, int, float) else None


def make_tool(
    name: str,
    options: ToolOptions,
    *,
    arguments: Arguments,
    handler: Handler,
    description: str | None,
    output: Validator | None = None,
    arity: int = 2,
    asynchronous: bool = True,
    default_category: str | None = None,
    owner: str | None,
    returns: type | None = None,
) -> Capability:
    """A tool from its checked parts."""
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
        arguments=arguments,
        output=output,
        returns=returns,
        owner=owner,
        mcp=McpFeatures(task=options.task, headers=read_header_parameters(arguments.schema)),
        **options.traits(arity, default_category),
    )


class Tool(Component):
    """A tool with real logic: its fields are the arguments, `execute` does the work."""

    _entry: ClassVar[str] = "execute"
    _options_type: ClassVar[type[Options]] = ToolOptions

    def _capability(self) -> Capability:
        cls = type(self)
        options = cast("ToolOptions", cls._options)
        entry = getattr(cls, self._entry)
        declared = declared_input(options)
        arguments = self._arguments() if declared is None else declared
        handler, arity = self._handler(arguments)
        return make_tool(
            self.component_name(),
            options,
            arguments=arguments,
            output=declared_output(options) or derived_output(resolve_hints(entry).get("return")),
            handler=handler,
            arity=arity,
            asynchronous=is_async(entry),
            description=description_of(cls, options),
            owner=cls.__name__,
        )


F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__waypost_tool__"


class _Decorator:
    """`@tool(...)` before it is applied to its function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def __call__(self, function: F) -> F:
        target = getattr(function, "__func__", function)
        name = getattr(target, "__name__", repr(target))
        if not callable(target) or isinstance(target, type):
            raise DefinitionError(f"@tool needs a function, not {name}; its options go by keyword.")
        parse_options(self.options, f"Tool {name!r}", ToolOptions)
        _check_unique(name, target)
        # Decorators apply from the function outwards: options that exist already were written nearer and win.
        merged = {**self.options, **getattr(target, _MARK, {})}
        setattr(target, _MARK, merged)
        return function


def _check_unique(name: str, target: object) -> None:
    """Refuse a second tool of one name in a class body, where Python would silently replace the first."""
    # The body of a class that is not finished yet exists only as the local variables of a frame.
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    written = {} if frame is None or "__qualname__" not in frame.f_locals else frame.f_locals
    before = written.get(name)
    if getattr(before, "__func__", before) is not target and tool_options(before) is not None:
        raise DefinitionError(f"Tool {name!r}: {written['__qualname__']} has two functions of that name.")


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Any) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
    """Mark a function as a tool; several marks on one function add up, the nearest wins."""
    decorator = _Decorator(options)
    return decorator if function is None else decorator(function)


def tool_options(function: object) -> Mapping[str, Any] | None:
    """The options `@tool` left on a function; `None` if it is not marked."""
    marked: Mapping[str, Any] | None = getattr(getattr(function, "__func__", function), _MARK, None)
    return marked


class Toolkit:
    """A bundle of small tools: every function marked with `@tool` becomes one."""

    category: ClassVar[str | None] = None
    _blueprints: ClassVar[dict[str, Blueprint]] = {}

    def __init_subclass__(cls, category: str | None = None, **unknown: Any) -> None:
        super().__init_subclass__()
        if unknown:
            raise DefinitionError(f"Toolkit {cls.__name__}: unknown option {next(iter(unknown))!r}; it takes category.")
        if category is not None:
            cls.category = category
        cls._blueprints = dict(cls._find_marked())
        names = [blueprint.capability.id for blueprint in cls._blueprints.values()]
        if len(set(names)) != len(names):
            twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
            raise DefinitionError(f"Toolkit {cls.__name__}: two tools share one name: {twice}.")

    @classmethod
    def _find_marked(cls) -> list[tuple[str, Blueprint]]:
        members: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            members.update(vars(base))
        found = []
        for attribute, member in members.items():
            wrapped = getattr(member, "fget", None) or getattr(member, "func", None)  # of a property, or a cached one
            if isinstance(member, _Decorator) or tool_options(wrapped) is not None:
                raise DefinitionError(f"Toolkit {cls.__name__}: {attribute} is a @tool without a function to call.")
            options = tool_options(member)
            if options is not None:
                found.append((attribute, cls._blueprint(member, options)))
        return found

    @classmethod
    def _blueprint(cls, member: Any, options: Mapping[str, Any]) -> Blueprint:
        function = getattr(member, "__func__", member)
        return tool_from_function(
            function,
            parse_options(options, f"Tool {function.__name__!r} of {cls.__name__}", ToolOptions),
            default_category=cls.category,
            owner=cls.__name__,
            in_class=not isinstance(member, staticmethod),
        )

    def capabilities(self) -> list[Capability]:
        """One tool per marked function, in the order of definition."""
        return [blueprint.bind(getattr(self, attribute)) for attribute, blueprint in self._blueprints.items()]


def expand(
    source: Any,
    *,
    name: str | None = None,
    description: str | None = None,
    category: str | None = None,
    hidden: bool | None = None,
    visible: bool | None = None,
) -> list[Capability]:
    """The capabilities of a toolkit, component, function or list of those, in the order of definition."""
    for option, value in {"hidden": hidden, "visible": visible}.items():
        if value is not None and not isinstance(value, bool):
            raise DefinitionError(f"{option} must be True or False, not {value!r}.")
    found = _capabilities(source, name)
    if len(found) != 1 and (name is not None or description is not None):
        raise DefinitionError(
            f"One name or description for {len(found)} tools of {_name_of(source)} is ambiguous; set it tool by tool."
        )
    if name is not None:
        check_name(name)
    changes = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
    facts = {"category": category, "hidden": resolve_hidden(hidden, visible)}
    traits = {key: value for key, value in facts.items() if value is not None}
    return [
        structs.replace(
            one,
            id=name if name is not None and one.kind in (Kind.TOOL, Kind.PROMPT) else one.id,
            definition=structs.replace(one.definition, meta=with_category(one.definition.meta, category), **changes),
            metadata=structs.replace(one.metadata, **traits),
        )
        for one in found
    ]


def instantiate(source: Any, config: Mapping[str, Any] | None = None) -> list[Any]:
    """`source` as a list, classes replaced by instances; `config` goes to the `__init__` of a toolkit."""
    if isinstance(source, (list, tuple)):
        return [one for part in source for one in instantiate(part, config)]
    if isinstance(source, type) and issubclass(source, (Component, Toolkit)):
        if config:
            try:
                inspect.signature(source).bind(**config)
            except TypeError as error:
                raise DefinitionError(f"{source.__name__} does not take this config: {error}.") from None
        return [source(**(config or {}))]
    if config:
        raise DefinitionError(f"{_name_of(source)} takes no config; only a toolkit class does, as in ./tools.py:Kit.")
    return [source]


def _capabilities(source: Any, name: str | None = None) -> list[Capability]:
    if isinstance(source, Capability):
        return [source]
    if isinstance(source, type) and issubclass(source, (Component, Toolkit)):
        return source().capabilities()
    if isinstance(source, (Component, Toolkit)):
        return source.capabilities()
    if isinstance(source, (list, tuple)):
        return [capability for part in source for capability in _capabilities(part)]
    if callable(source) and not isinstance(source, type):
        given = {**(tool_options(source) or {}), **({} if name is None else {"name": name})}
        options = parse_options(given, f"Tool {_name_of(source)!r}", ToolOptions)
        return [tool_from_function(source, options).capability]
    raise DefinitionError(f"{_name_of(source)} is no tool, toolkit, resource or prompt.")


def _name_of(source: Any) -> str:
    return str(getattr(source, "__name__", type(source).__name__))
