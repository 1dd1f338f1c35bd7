"""The parts of a kind of executor, and what its executors run with.

An executor is built once from its model and holds nothing of a single run. `run` gets one `Run` and returns the output,
or raises `ExecutorFailed` with the class of its failure. Retries, timeouts of attempts and fallbacks are in
`reliability.py`; waiting for people and for other workflows is the engine's part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from waypost.capabilities.context import Caller
from waypost.capabilities.results import Result
from waypost.config.findings import KeyPath
from waypost.config.models import CliConnection, Connection, Idempotent, McpConnection, RestConnection
from waypost.errors import ExecutorFailed
from waypost.kinds import EXECUTORS, ExecutorModel, nested_in, nesting_fields
from waypost.workflows.scope import GUARD_ROOTS, MISSING, NESTED_ROOTS, Scope, Template, compile_template

if TYPE_CHECKING:
    from waypost.outbound.egress import Egress
    from waypost.workflows.data_flow import Place, Report
    from waypost.workflows.executors.human import Human

NO_TIMEOUT_S: Final = 365 * 86_400.0
"""For calls that need a number: the timeout of an attempt is applied around the executor."""
IDEMPOTENCY_KEY: Final = "waypost/idempotencyKey"
"""The entry of a call's `_meta` that carries the idempotency key."""

Paths = Annotated[
    dict[str, Any], Meta(description="Names and values; a path such as `$.arguments.name` is replaced by its value.")
]
M = TypeVar("M", bound=ExecutorModel)
C = TypeVar("C", McpConnection, CliConnection, RestConnection)
Target = type[Connection] | Literal["capability", "function", "workflow"]
"""What a field refers to: a connection of a type, a tool of this hub, a worker's function, or a workflow."""


class ExecutorFields(Struct, ExecutorModel, frozen=True, kw_only=True, rename="camel", tag_field="kind"):
    """The settings that every executor has; the models of kinds derive from it."""

    idempotent: Idempotent = False
    idempotency_key: Annotated[
        bool | str,
        Meta(description="The key's text, with `{workflowId}`, `{transition}`, `{correlationId}`; it is always sent."),
    ] = True


@dataclass(frozen=True, slots=True)
class Run:
    """One execution: its scope, the idempotency key, and the caller it runs for."""

    scope: Scope
    key: str
    caller: Caller

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` of a call that it makes."""
        return {IDEMPOTENCY_KEY: self.key}


@dataclass(frozen=True, slots=True)
class Executor:
    """Something a transition runs."""

    kind: str
    """The kind it has in the configuration."""
    run: Callable[[Run], Awaitable[Any]]
    """Runs once; returns the output as JSON data, raises `ExecutorFailed`."""
    evidence: str | None = None
    """The kind of evidence that its success leaves, if any."""
    limit: float | None = None
    """Its own time limit in seconds, if it has one."""


async def _no_children(definition: str, *call: Any) -> dict[str, Any]:
    raise ExecutorFailed(f"There is no engine to run {definition}.")


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What executors need of the hub: connections, clients and calls."""

    connections: Callable[[], Mapping[str, Connection]]
    """The connections of the current configuration, by name."""
    egress: Callable[[bool], Egress]
    """The HTTP client; the argument says whether private addresses are allowed."""
    invoke: Callable[[str, dict[str, Any], Caller, Mapping[str, Any]], Awaitable[Result]]
    """Calls a capability of this hub through its pipeline: name, arguments, caller, `_meta`."""
    call_upstream: Callable[[str, str, dict[str, Any], Mapping[str, Any], str], Awaitable[dict[str, Any]]]
    """Calls a tool of an MCP server: connection, tool, arguments, `_meta`, principal; the answer as plain JSON data."""
    run_child: Callable[[str, dict[str, Any], str, Caller, float | None], Awaitable[dict[str, Any]]] = _no_children
    """Runs another workflow to its end: definition, input, key, caller, time limit in seconds."""
    function: Callable[[str], str | None] = lambda _: None
    """The tool of a worker's function, by the function's id."""
    secrets: Callable[[], tuple[str, ...]] = tuple
    """The values of the current configuration that no output may hold."""

    def connection(self, name: str, kind: type[C]) -> C:
        """The connection of that name; `ExecutorFailed` if it does not exist or is of another kind."""
        found = self.connections().get(name)
        if found is None:
            raise ExecutorFailed(f"There is no connection {name}.")
        if not isinstance(found, kind):
            raise ExecutorFailed(f"The connection {name} is of another kind.")
        return found


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds executors from their models; `within` are the kinds that they are nested in, outermost first."""

    context: ExecutorContext
    within: tuple[str, ...] = ()

    @property
    def roots(self) -> frozenset[str]:
        """The allowed roots of paths."""
        return NESTED_ROOTS if self.within else GUARD_ROOTS

    def build(self, model: ExecutorModel) -> Executor:
        """The executor of a model; `DefinitionError` for a model that cannot work."""
        return kind_of(model).build(model, self)

    def inside(self, kind: str) -> Builder:
        """The builder for executors nested in an executor of that kind."""
        return Builder(self.context, (*self.within, kind))

    def value(self, written: Any) -> Callable[[Scope], Any]:
        """Compile a template; what comes of it raises `ExecutorFailed` with the path if there is no value."""
        template = compile_template(written, self.roots)

        def fill(scope: Scope) -> Any:
            if (value := template.fill(scope)) is MISSING:
                raise ExecutorFailed(f"There is no value at {written}.")
            return value

        return fill

    def arguments(self, written: Paths | None) -> Callable[[Scope], dict[str, Any]]:
        """Compile the arguments of a call: a template, or without one those of the transition."""
        template = None if written is None else compile_template(written, self.roots)
        return lambda scope: dict(scope.arguments if template is None else template.fill(scope))


@dataclass(frozen=True, slots=True)
class ApprovalPlan:
    """The engine waits until people approve."""

    model: Human
    presents: Template | None
    evidence: str


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """The engine starts another workflow and waits for its end."""

    definition: str
    input: Template | None
    within: float | None
    evidence: str


class NoWork:
    """The engine runs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorKind(Generic[M]):
    """Everything about one kind of executor; a part that is left out is a type error and a `TypeError` at import."""

    model: type[M]
    """The struct of its YAML form; the struct's tag is the name of the kind."""
    build: Callable[[M, Builder], Executor]
    """Builds the executor; raises `DefinitionError` for a model that cannot work."""
    plan: Callable[[M], ApprovalPlan | ChildPlan | NoWork] | None
    """What the engine does instead of running it, where a transition or `onEnter` has it directly."""
    check: Callable[[M, KeyPath, Report], None] | None
    """Reports what is wrong with an executor in every place."""
    check_place: Callable[[M, Place, Report], None] | None
    """Reports that an executor cannot run in its place; entries of `capabilities` are resolved."""
    names: Mapping[str, Target]
    """The fields that refer to something by name."""
    templates: tuple[str, ...]
    """The fields with templates."""
    asks_person: bool
    """Whether a person decides before it succeeds."""
    mark: str
    """What graphs append to the name of a transition."""
    stored: tuple[str, ...] = ()
    """The fields whose values become part of an instance, beside `idempotency_key`; secrets are refused in them."""

    lookups: Callable[[M], Iterable[tuple[str, str]]] = lambda _: ()
    """The names that it looks up in the arguments, the context and the input, each with the key that has it."""

    keys: Mapping[str, str] = field(init=False)
    """The key of each field in the configuration."""

    def __post_init__(self) -> None:
        struct: Any = self.model
        keys = {one.name: one.encode_name for one in msgspec.structs.fields(struct)}
        object.__setattr__(self, "keys", keys)
        if unknown := {*self.names, *self.templates} - keys.keys():
            raise TypeError(f"{self.model.__name__} has no fields {', '.join(sorted(unknown))}")

    @property
    def name(self) -> str:
        """The value of `kind` in the configuration."""
        return str(self.model.__struct_config__.tag)  # type: ignore[attr-defined]


class Reference(NamedTuple):
    """A name in an executor: its key, and what it refers to."""

    key: str
    target: Target
    name: str


register_executor: Final[Callable[[ExecutorKind[Any]], None]] = EXECUTORS.add
"""Add a kind for the configuration, the checks, the engine and the graphs of this process."""
unregister_executor: Final[Callable[[ExecutorKind[Any]], None]] = EXECUTORS.remove
kind_of: Final[Callable[[ExecutorModel], ExecutorKind[Any]]] = EXECUTORS.kind_of
"""The kind of a model; raises `DefinitionError` if it is not registered."""


def names_in(model: ExecutorModel) -> Iterator[Reference]:
    """The names in an executor, without those nested in it."""
    kind = kind_of(model)
    for field_name, target in kind.names.items():
        if (name := getattr(model, field_name)) is not None:
            yield Reference(kind.keys[field_name], target, name)


def names_in_data(data: Mapping[str, Any]) -> Iterator[Reference]:
    """The names in an executor that is given as plain data; none if it is not an executor."""
    model = EXECUTORS.models.get(str(data.get("kind")))
    if model is None:
        return
    kind = EXECUTORS.by_model[model]
    for field_name, target in kind.names.items():
        key = kind.keys[field_name]
        if isinstance(name := data.get(key), str):
            yield Reference(key, target, name)


def templates_in(model: ExecutorModel) -> dict[str, Any]:
    """The templates of an executor, by their keys."""
    kind = kind_of(model)
    return {kind.keys[name]: getattr(model, name) for name in kind.templates}


def with_nested(model: M, change: Callable[[ExecutorModel], ExecutorModel]) -> M:
    """A copy with the directly nested executors changed."""
    changed: dict[str, Any] = {}
    struct: Any = type(model)
    for name in nesting_fields(struct, ExecutorModel):
        value = getattr(model, name)
        if value is not None:
            changed[name] = [change(one) for one in value] if isinstance(value, list) else change(value)
    return msgspec.structs.replace(model, **changed) if changed else model  # type: ignore[type-var]


def walk(model: ExecutorModel) -> Iterator[ExecutorModel]:
    """An executor and all nested ones."""
    yield model
    for _, inner in nested_in(model, ExecutorModel):
        yield from walk(inner)


def is_idempotent(model: ExecutorModel) -> bool:
    """Whether it may be run again when its outcome is unknown: it is declared so, or all nested ones are."""
    inner = [one for _, one in nested_in(model, ExecutorModel)]
    return model.idempotent or (bool(inner) and all(map(is_idempotent, inner)))
