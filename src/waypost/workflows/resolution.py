"""Putting the entries of `capabilities` where executors name them, so that a workflow holds everything it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from waypost.config.findings import quoted
from waypost.config.models import Capability, Reliability, Schema, State, Transition, Workflow
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, GuardModel
from waypost.suggestions import did_you_mean
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.kind import with_nested

Capabilities = Mapping[str, Capability]
_Item = TypeVar("_Item")


def resolve(workflow: Workflow, capabilities: Capabilities) -> Workflow:
    """The workflow with every entry of `capabilities` that it names put in its place.

    On a transition the guards of all entries it runs come before its own, and the entry it names directly gives it a
    schema and a reliability where it has none. A name that is no entry stays: it is a call of something the hub offers.
    What cannot be put in its place is a `DefinitionError`.
    """
    states = {name: _resolve_state(state, capabilities) for name, state in workflow.states.items()}
    return replace(workflow, states=states)


def resolve_capability(name: str, capabilities: Capabilities) -> Capability:
    """An entry together with everything it wraps and names; it has an executor and wraps nothing any more."""
    return _resolve_entry(name, capabilities, ())


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the one that may be meant, or those there are."""
    names = sorted(known)
    if hint := did_you_mean(name, names, quote=quoted):
        return hint
    if not names:
        return "there are none"
    shown = ", ".join(quoted(other) for other in names[:10])
    return f"there is {shown}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _resolve_state(state: State, capabilities: Capabilities) -> State:
    transitions = {
        name: _resolve_transition(transition, capabilities) for name, transition in state.transitions.items()
    }
    entering = state.on_enter
    if entering is not None:
        runs = _resolve_executor(entering.executor, entering.reliability, capabilities, ())
        if runs.guards:
            raise DefinitionError(
                "`onEnter` names a capability that has guards, and nothing checks them there; run it in a transition"
            )
        entering = replace(entering, executor=runs.executor, reliability=runs.reliability)
    return replace(state, transitions=transitions, on_enter=entering)


def _resolve_transition(transition: Transition, capabilities: Capabilities) -> Transition:
    if transition.executor is None:
        return transition
    runs = _resolve_executor(transition.executor, transition.reliability, capabilities, ())
    return replace(
        transition,
        executor=runs.executor,
        reliability=runs.reliability,
        guards=[*runs.guards, *transition.guards],
        input_schema=runs.input_schema if transition.input_schema is None else transition.input_schema,
    )


class _Resolved(Struct, frozen=True):
    """An executor in which no entry is named any more, with what the entries in it ask for."""

    executor: ExecutorModel
    reliability: Reliability | None
    guards: list[GuardModel]
    input_schema: Schema | None


def _resolve_executor(
    executor: ExecutorModel, reliability: Reliability | None, capabilities: Capabilities, behind: tuple[str, ...]
) -> _Resolved:
    """What runs for an executor; `behind` are the entries it stands in."""
    guards: list[GuardModel] = []
    schema: Schema | None = None
    if isinstance(executor, CapabilityCall) and executor.capability in capabilities:
        entry = _inline_entry(executor, capabilities, behind)
        assert entry.executor is not None
        inlined, schema = entry.executor, entry.input_schema
        guards += entry.guards
        reliability = reliability or entry.reliability
    else:
        inlined = _inline(executor, capabilities, behind, guards)
    if reliability is not None and reliability.fallback is not None:
        others = [_inline(other, capabilities, behind, guards) for other in reliability.fallback.executors]
        reliability = replace(reliability, fallback=replace(reliability.fallback, executors=others))
    return _Resolved(inlined, reliability, _union(guards, []), schema)


def _inline(
    executor: ExecutorModel, capabilities: Capabilities, behind: tuple[str, ...], guards: list[GuardModel]
) -> ExecutorModel:
    """The executor with the entries it names in their places; their guards are added to `guards`."""
    if isinstance(executor, CapabilityCall) and executor.capability in capabilities:
        entry = _inline_entry(executor, capabilities, behind)
        assert entry.executor is not None
        guards += entry.guards
        return entry.executor
    return with_nested(executor, lambda inner: _inline(inner, capabilities, behind, guards))


def _inline_entry(call: CapabilityCall, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    if call.arguments is not None:
        raise DefinitionError(
            f"{quoted(call.capability)} is an entry of `capabilities`, so it takes no `arguments` here; "
            "put them into the capability's own executor"
        )
    return _resolve_entry(call.capability, capabilities, behind)


def _resolve_entry(name: str, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    flat = _flatten(name, capabilities, behind)
    assert flat.executor is not None
    runs = _resolve_executor(flat.executor, flat.reliability, capabilities, (*behind, name))
    return replace(
        flat,
        executor=runs.executor,
        reliability=runs.reliability,
        guards=_union(runs.guards, flat.guards),
        input_schema=runs.input_schema if flat.input_schema is None else flat.input_schema,
    )


def _flatten(name: str, capabilities: Capabilities, behind: tuple[str, ...]) -> Capability:
    """An entry together with what it wraps; what its executor names is still only named."""
    if name in behind:
        ring = " → ".join(quoted(part) for part in (*behind[behind.index(name) :], name))
        raise DefinitionError(f"capabilities are made from each other in a circle, {ring}; give one its own executor")
    own = capabilities.get(name)
    if own is None:
        raise DefinitionError(f"there is no capability {quoted(name)}; {nearest(name, capabilities)}")
    if own.wraps is None:
        if own.executor is None:
            raise DefinitionError(f"the capability {quoted(name)} runs nothing; give it `executor` or `wraps`")
        return own
    inner = _flatten(own.wraps, capabilities, (*behind, name))
    return replace(
        own,
        wraps=None,
        title=own.title or inner.title,
        description=own.description or inner.description,
        tags=_union(inner.tags, own.tags),
        examples=_union(inner.examples, own.examples),
        input_schema=inner.input_schema if own.input_schema is None else own.input_schema,
        executor=own.executor or inner.executor,
        guards=_union(inner.guards, own.guards),
        reliability=own.reliability or inner.reliability,
    )


def _union(first: list[_Item], second: list[_Item]) -> list[_Item]:
    found: list[_Item] = []
    for item in (*first, *second):
        if item not in found:
            found.append(item)
    return found
