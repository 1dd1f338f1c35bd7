"""The parts of a kind of guard, and compiled guards.

Reasons are shown to the caller: values and texts under keys that look secret are hidden, and long ones are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec

from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError
from waypost.kinds import GUARDS, GuardModel
from waypost.redaction import HIDDEN, is_secret_name
from waypost.workflows.expressions import Compare, Expression, Literal, all_of
from waypost.workflows.scope import MISSING, Path, Scope, quote

MAX_DEPTH: Final = 64
"""The maximum depth of nested guards."""
MAX_WAYS: Final = 256
"""The maximum number of ways that are compared to find out whether guards can hold."""

_MAX_TEXT_CHARS: Final = 200
_MAX_ITEMS: Final = 10
_MAX_VALUE_DEPTH: Final = 4

M = TypeVar("M", bound=GuardModel)
Test = Callable[[Scope], bool]


class Reason(TypedDict):
    """Why a guard does not hold: the guard, a sentence, and the values that it read."""

    guard: dict[str, Any]
    message: str
    operands: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lack:
    """A reason, as part of a sentence."""

    guard: dict[str, Any]
    clause: str
    operands: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompiledGuard:
    """A compiled guard."""

    data: dict[str, Any]
    """The guard as plain data."""
    holds: Test
    lacks: Callable[[Scope], list[Lack]] = field(repr=False)
    """The reasons; only called if it does not hold."""
    expressions: tuple[Expression, ...] = ()

    def failures(self, scope: Scope) -> list[Reason]:
        """Why it does not hold; empty when it does."""
        if self.holds(scope):
            return []
        return [
            Reason(guard=lack.guard, message=f"{lack.clause[0].upper()}{lack.clause[1:]}.", operands=lack.operands)
            for lack in self.lacks(scope)
        ]


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles guards that are nested `depth` levels deep."""

    depth: int = 0

    def compile(self, guard: GuardModel) -> CompiledGuard:
        """Compile a guard; raises `DefinitionError`."""
        if self.depth >= MAX_DEPTH:
            raise DefinitionError(f"guards are nested deeper than {MAX_DEPTH} levels")
        return kind_of(guard).compile(guard, Compiler(self.depth + 1))


class Has(NamedTuple):
    """The caller, or the instance, has something: a role, a permission, evidence of a kind."""

    what: str
    name: str
    at_least: int = 1


class Opaque(NamedTuple):
    """A condition that cannot be analysed."""

    text: str


Atom: TypeAlias = Compare | Literal | Path | Has | Opaque


class Fact(NamedTuple):
    """An atom, and whether it holds."""

    atom: Atom
    holds: bool


Ways: TypeAlias = list[tuple[Fact, ...]]
"""A disjunction: each way is a list of facts that are true together."""


class TooManyWays(Exception):
    """There are more ways than are compared."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about a recorded moment: the scope, the caller's roles and permissions, and which values."""

    scope: Scope
    knows_caller: bool
    is_hidden: Callable[[Path], bool]

    def truth(self, guard: GuardModel) -> bool | None:
        """Whether a guard holds, as its kind decides it."""
        return kind_of(guard).truth(guard, self)

    def evaluate(self, guard: GuardModel) -> bool | None:
        """Whether a guard holds; None if an expression in it reads a hidden value."""
        compiled = Compiler().compile(guard)
        hidden = any(self.is_hidden(path) for expression in compiled.expressions for path in expression.paths)
        return None if hidden else compiled.holds(self.scope)

    def all_true(self, guards: Iterable[GuardModel], holds: bool = True) -> bool | None:
        """Whether all guards hold, or all do not hold (`holds=False`); one that does otherwise decides."""
        found = [self.truth(guard) for guard in guards]
        return False if (not holds) in found else None if None in found else True


def negate(truth: bool | None) -> bool | None:
    """The opposite; what is not known stays so."""
    return None if truth is None else not truth


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardKind(Generic[M]):
    """Everything about one kind of guard; a part that is left out is a type error and a `TypeError` at import."""

    model: type[M]
    """The struct of its YAML form; the struct's tag is the name of the kind."""
    compile: Callable[[M, Compiler], CompiledGuard]
    """Compiles a guard; raises `DefinitionError`."""
    expressions: tuple[str, ...]
    """The fields with an expression, whose paths the checks follow."""
    ways: Callable[[M, bool], Ways]
    """The ways in which it can hold, or cannot hold; raises `TooManyWays`."""
    needs_instance: Callable[[M], bool]
    """Whether it can never hold outside of a workflow."""
    text: Callable[[M], str] | None
    """The guard as one line, for graphs and histories; None where that is its kind, and its JSON."""
    truth: Callable[[M, Knowledge], bool | None]
    """Whether it holds in a recorded instance; None where that depends on something that was not recorded."""

    def __post_init__(self) -> None:
        struct: Any = self.model
        if unknown := set(self.expressions) - {one.name for one in msgspec.structs.fields(struct)}:
            raise TypeError(f"{self.model.__name__} has no fields {', '.join(sorted(unknown))}")

    @property
    def name(self) -> str:
        """The value of `kind` in the configuration."""
        return str(self.model.__struct_config__.tag)  # type: ignore[attr-defined]


register_guard: Final[Callable[[GuardKind[Any]], None]] = GUARDS.add
"""Add a kind for the configuration, the checks, the engine and the graphs of this process."""
unregister_guard: Final[Callable[[GuardKind[Any]], None]] = GUARDS.remove
kind_of: Final[Callable[[GuardModel], GuardKind[Any]]] = GUARDS.kind_of
"""The kind of a model; raises `DefinitionError` if it is not registered."""


def join_ways(parts: Iterable[Ways], *, every: bool = True) -> Ways:
    """The ways in which all parts are true (`every`), or one of them."""
    ways: Ways = [()] if every else [way for part in parts for way in part]
    for part in parts if every else ():
        if len(ways) * len(part) > MAX_WAYS:  # before they are made: their number is a product
            raise TooManyWays
        ways = [(*one, *other) for one, other in product(ways, part)]
    if len(ways) > MAX_WAYS:
        raise TooManyWays
    return ways


def ways_of(guard: GuardModel, holds: bool) -> Ways:
    """The ways in which a guard holds, or does not; raises `TooManyWays`."""
    return kind_of(guard).ways(guard, holds)


def group_kind(
    model: type[M], *, every: bool, lacks: Callable[[dict[str, Any], Sequence[CompiledGuard], Scope], list[Lack]]
) -> GuardKind[M]:
    """A kind whose `guards` all have to hold (`every`), or one of them; `lacks` gives the reasons why not."""

    def inner(guard: Any) -> list[GuardModel]:
        found: list[GuardModel] = guard.guards
        return found

    def compile(guard: M, compiler: Compiler) -> CompiledGuard:
        guards = [compiler.compile(one) for one in inner(guard)]
        data = {"kind": kind.name, "guards": [one.data for one in guards]}
        tests = [one.holds for one in guards]
        holds = all_of(tests) if every else lambda scope: any(test(scope) for test in tests)
        expressions = tuple(expression for one in guards for expression in one.expressions)
        return CompiledGuard(data, holds, lambda scope: lacks(data, guards, scope), expressions)

    def find_ways(guard: M, holds: bool) -> Ways:
        return join_ways([ways_of(one, holds) for one in inner(guard)], every=holds == every)

    def needs_instance(guard: M) -> bool:
        found = [kind_of(one).needs_instance(one) for one in inner(guard)]
        return any(found) if every else bool(found) and all(found)

    def truth(guard: M, known: Knowledge) -> bool | None:
        return known.all_true(inner(guard)) if every else negate(known.all_true(inner(guard), holds=False))

    kind = GuardKind(
        model=model,
        compile=compile,
        expressions=(),
        ways=find_ways,
        needs_instance=needs_instance,
        text=None,
        truth=truth,
    )
    return kind


def possession_kind(model: type[M], owned: Callable[[Principal], Collection[str]]) -> GuardKind[M]:
    """A kind that asks the caller for what its only field names, such as a role; `owned` is what a caller has."""
    struct: Any = model
    (field,) = struct.__struct_fields__

    def compile(guard: M, compiler: Compiler) -> CompiledGuard:
        data, name = msgspec.to_builtins(guard), getattr(guard, field)
        lack = Lack(data, f"the caller lacks the {field} {quote(name)}")
        return CompiledGuard(data, lambda scope: name in owned(scope.principal), lambda scope: [lack])

    return GuardKind(
        model=model,
        compile=compile,
        expressions=(),
        ways=lambda guard, holds: [(Fact(Has(field, getattr(guard, field)), holds),)],
        needs_instance=lambda guard: False,
        text=None,
        truth=lambda guard, known: known.evaluate(guard) if known.knows_caller else None,
    )


def redact(value: Any, depth: int = 0) -> Any:
    """A value for callers: masked under keys that look secret, and shortened."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict | list | tuple) and depth >= _MAX_VALUE_DEPTH:
        return "…"
    if isinstance(value, dict):
        shown = {cut(str(key)): redact_at(str(key), item, depth) for key, item in list(value.items())[:_MAX_ITEMS]}
        return shown if len(value) <= _MAX_ITEMS else {**shown, "…": f"{len(value) - _MAX_ITEMS} more"}
    if isinstance(value, list | tuple):
        items = [redact(item, depth + 1) for item in value[:_MAX_ITEMS]]
        return items if len(value) <= _MAX_ITEMS else [*items, f"… {len(value) - _MAX_ITEMS} more"]
    return None if value is MISSING else value


def redact_at(name: str, value: Any, depth: int = -1) -> Any:
    """The value under a key or at a path, masked if the name looks secret."""
    # That a value exists, or is true, is no secret, and most guards only ask for that.
    if is_secret_name(name) and value is not None and value is not MISSING and not isinstance(value, bool):
        return HIDDEN
    return redact(value, depth + 1)


def read_operands(paths: Iterable[Path], scope: Scope) -> dict[str, Any]:
    """The values at paths, masked and shortened for callers."""
    return {path.text: redact_at(path.text, path.get(scope)) for path in paths}


def cut(text: str) -> str:
    """A text of bounded length."""
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…"
