"""The graph of states or steps: names, targets, reachability, circles, and what runs without a person."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from waypost.config import Config
from waypost.config.findings import KeyPath, quoted
from waypost.config.models import Capability, State, Step, Transition, Workflow
from waypost.workflows.checking.places import (
    Place,
    Report,
    Way,
    backward,
    executors_at,
    onward,
    reachable,
    reached,
    ways,
)
from waypost.workflows.checking.references import check_capability_name, made_from
from waypost.workflows.executors.kind import kind_of, names_in
from waypost.workflows.records import PROXY
from waypost.workflows.resolution import nearest
from waypost.workflows.steps import position_of, step_name


def check_structure(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report what is wrong with the form of a workflow."""
    if path[-1] == PROXY:
        sentence = f"{quoted(PROXY)} is what single capabilities are used through; call the workflow something else"
        report.add(path, sentence, "WF005")
    if not workflow.states and not workflow.steps:
        report.add(path, "the workflow has neither `states` nor `steps`; add one of them", "WF001")
    if workflow.states and workflow.steps:
        report.add((*path, "steps"), "the workflow has `states` and `steps`; keep one of them", "WF001")
    if not workflow.states:
        return
    if workflow.initial_state is None:
        report.add(path, "the workflow does not say where it begins; add `initialState`", "WF002")
    else:
        _check_state_name(workflow, workflow.initial_state, (*path, "initialState"), report)
    if workflow.on_timeout is not None:
        _check_state_name(workflow, workflow.on_timeout.target, (*path, "onTimeout", "target"), report)
    for name, state in workflow.states.items():
        where = (*path, "states", name)
        _check_reserved_name(name, "state", where, report)
        _check_state(name, state, where, report)
        for way, transition in state.transitions.items():
            _check_reserved_name(way, "transition", (*where, "transitions", way), report)
            _check_targets(workflow, transition, (*where, "transitions", way), report)


def check_timeout(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report an `onTimeout` that can never happen."""
    if workflow.on_timeout is not None and workflow.timeout_ms is None:
        report.add((*path, "onTimeout"), "there is no time that could be over; add `timeoutMs`", "WF004")


def check_arguments(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report deterministic transitions that require arguments: no caller gives any."""
    for state, model in resolved.states.items():
        for name, transition in model.transitions.items():
            if transition.actor != "deterministic" or not _required_arguments(transition.input_schema or {}):
                continue
            where = (*path, "states", state, "transitions", name)
            own = workflow.states[state].transitions[name].input_schema is not None
            sentence = (
                f"{quoted(name)} is taken by itself, so nobody gives it the arguments its schema requires; "
                "give them defaults or let an agent take it"
            )
            report.add((*where, "inputSchema" if own else "executor"), sentence, "WF008")


def _required_arguments(schema: dict[str, Any]) -> list[Any]:
    """What has to be given and has no default."""
    required, properties = schema.get("required"), schema.get("properties")
    filled = {
        name
        for name, inner in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(inner, dict) and "default" in inner
    }
    return [name for name in required if name not in filled] if isinstance(required, list) else []


def _check_state_name(workflow: Workflow, name: str, path: KeyPath, report: Report) -> None:
    if name not in workflow.states:
        report.add(path, f"there is no state {quoted(name)}; {nearest(name, workflow.states)}", "WF003")


def _check_reserved_name(name: str, kind: str, path: KeyPath, report: Report) -> None:
    if name.startswith("$"):
        report.add(path, f"names that begin with `$` are kept for Waypost; call the {kind} something else", "WF005")


def _check_state(name: str, state: State, path: KeyPath, report: Report) -> None:
    if state.terminal and state.transitions:
        sentence = f"{quoted(name)} is terminal and has transitions; remove `terminal` or the transitions"
        report.add((*path, "transitions"), sentence, "WF006")
    if state.terminal and state.on_enter is not None:
        sentence = (
            f"{quoted(name)} is terminal, so nothing runs there; move `onEnter` to the transitions that lead to it"
        )
        report.add((*path, "onEnter"), sentence, "WF006")
    if state.outcome is not None and not state.terminal:
        report.add((*path, "outcome"), f"{quoted(name)} is no end; add `terminal: true` or remove `outcome`", "WF007")


def _check_targets(workflow: Workflow, transition: Transition, path: KeyPath, report: Report) -> None:
    _check_state_name(workflow, transition.target, (*path, "target"), report)
    for index, branch in enumerate(transition.branches):
        _check_state_name(workflow, branch.target, (*path, "branches", index, "target"), report)


def check_reachability(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report states that cannot be reached or left, and circles without a decision.

    The workflow is the resolved one.
    """
    if workflow.initial_state not in workflow.states:
        return
    here = reachable(workflow)
    states = (*path, "states")
    for name in workflow.states:
        if name not in here:
            sentence = f"no way leads to {quoted(name)}; let a transition lead there, or remove it"
            report.add((*states, name), sentence, "WF050")
    _check_ends(workflow, here, states, report)
    _check_circles(workflow, here, states, report)
    for name in here:
        _check_candidates(workflow.states[name], (*states, name, "transitions"), report)


def _check_ends(workflow: Workflow, here: set[str], states: KeyPath, report: Report) -> None:
    terminal = [name for name, state in workflow.states.items() if state.terminal]
    timed = workflow.timeout_ms is not None and workflow.on_timeout is not None
    dead = {name for name in here if not (workflow.states[name].terminal or workflow.states[name].transitions or timed)}
    for name in workflow.states:
        if name in dead:
            sentence = f"{quoted(name)} cannot be left and is no end; add `terminal: true` or a transition"
            report.add((*states, name), sentence, "WF051")
    if not terminal:
        if not dead:
            report.add(states, "no state is an end; give one `terminal: true`", "WF052")
        return
    ending = reached(terminal, backward(ways(workflow)))
    for name in workflow.states:
        if name in here and name not in ending and name not in dead:
            sentence = f"no end can be reached from {quoted(name)}; add a transition that leads to one"
            report.add((*states, name), sentence, "WF052")


def _is_automatic(state: State) -> bool:
    """Whether a state is left without a decision of a caller."""
    return bool(state.transitions) and all(way.actor == "deterministic" for way in state.transitions.values())


def _check_circles(workflow: Workflow, here: set[str], states: KeyPath, report: Report) -> None:
    automatic = {name for name in here if _is_automatic(workflow.states[name])}

    def stays(way: Way) -> bool:
        return way.transition is not None and way.source in automatic and way.target in automatic

    steps = onward(ways(workflow), stays)
    reported: set[str] = set()
    for name in workflow.states:
        ring = _shortest_circle(name, steps) if name not in reported else None
        if ring is not None:
            reported |= {other for other in reached([name], steps) if name in reached([other], steps)}
            shown = " → ".join(quoted(part) for part in ring)
            sentence = f"the workflow can go round by itself, {shown}; let somebody decide once, or lead out of it"
            report.add((*states, name), sentence, "WF053")


def _shortest_circle(start: str, steps: dict[str, list[str]]) -> list[str] | None:
    """The shortest way from a state back to itself."""
    before: dict[str, str] = {}
    waiting = [start]
    for name in waiting:
        for target in steps.get(name, ()):
            if target == start:
                ring = [start, name]
                while ring[-1] != start:
                    ring.append(before[ring[-1]])
                return ring[::-1] if name != start else [start, start]
            if target not in before:
                before[target] = name
                waiting.append(target)
    return None


def _check_candidates(state: State, transitions: KeyPath, report: Report) -> None:
    free = [name for name, way in state.transitions.items() if way.actor == "deterministic" and not _has_guards(way)]
    for name in free[1:]:
        sentence = (
            f"{quoted(name)} and {quoted(free[0])} are both taken by themselves and have no guards; "
            "give all but one of them guards"
        )
        report.add((*transitions, name), sentence, "WF056")


def _has_guards(transition: Transition) -> bool:
    return bool(transition.guards or (transition.evidence and transition.evidence.requires))


Onward: TypeAlias = dict[str, list[str]]
END: Final = "end"


def check_steps(
    workflow: Workflow, config: Config, path: KeyPath, known: Collection[str] | None, report: Report
) -> None:
    """Report what is wrong with the steps of a workflow."""
    named: dict[str, int] = {}
    onward = {str(place): _following_steps(place, workflow.steps) for place in range(1, len(workflow.steps) + 1)}
    for place, step in enumerate(workflow.steps, 1):
        where = (*path, "steps", place - 1)
        _check_step(step, where, report)
        if step.capability is not None and step.capability in config.capabilities:
            sentence = f"{quoted(step.capability)} is an entry of `capabilities`, which only transitions can run"
            report.add((*where, "capability"), sentence, "WF012")
        elif step.capability is not None:
            check_capability_name(step.capability, config, (*where, "capability"), known, report)
        if step.input_from is not None:
            _check_source(step.input_from, place, workflow.steps, onward, (*where, "input_from"), report)
        for number, route in enumerate(step.routes):
            target = _check_step_reference(route.goto, workflow.steps, (*where, "routes", number, "goto"), report)
            if target is not None and target <= place:
                _check_way_back(place, target, onward, (*where, "routes", number, "goto"), report)
        name = step_name(step)
        if name and named.setdefault(name, place) != place:
            sentence = f"step {named[name]} is called {quoted(name)} too; give one of them another `name`"
            report.add((*where, "name"), sentence, "WF041")


def _check_step(step: Step, path: KeyPath, report: Report) -> None:
    if step.skill is None and step.capability is None:
        report.add(path, "the step runs nothing; add `skill` or `capability`", "WF042")
    elif step.skill is not None and step.capability is not None:
        report.add((*path, "capability"), "the step runs a skill and a capability; keep one of them", "WF042")
    if step.on_circuit_open == "fallback" and step.fallback_skill is None:
        report.add((*path, "on_circuit_open"), "nothing is named to run instead; add `fallback_skill`", "WF043")


def _check_step_reference(reference: str | int, steps: list[Step], path: KeyPath, report: Report) -> int | None:
    """The position of a step that is named, from 1."""
    place = position_of(reference, steps)
    if place is None and isinstance(reference, int):
        report.add(path, f"there is no step {reference}; positions go from 1 to {len(steps)}", "WF040")
    elif place is None:
        names = [name for name in map(step_name, steps) if name]
        report.add(path, f"there is no step {quoted(str(reference))}; {nearest(str(reference), names)}", "WF040")
    return place


def _check_source(
    reference: str | int, place: int, steps: list[Step], onward: Onward, path: KeyPath, report: Report
) -> None:
    source = _check_step_reference(reference, steps, path, report)
    if source is not None and (source == place or str(place) not in reached([str(source)], onward)):
        sentence = f"step {source} has not run when step {place} begins; name one that comes before it"
        report.add(path, sentence, "WF045")


def _check_way_back(place: int, target: int, onward: Onward, path: KeyPath, report: Report) -> None:
    """A run fails when it comes to a step again, so a way back is only good for what was jumped over."""
    came = str(place) in _reached_without(str(target), "1", onward)
    goes_on = END in _reached_without(str(place), str(target), onward)
    if target == place or not came or not goes_on:
        sentence = f"step {target} comes again, and a run that comes to a step twice fails; lead to a later step"
        report.add(path, sentence, "WF044")


def _following_steps(place: int, steps: list[Step]) -> list[str]:
    """The steps that can follow one, or the end."""
    step = steps[place - 1]
    following = str(place + 1) if place < len(steps) else END
    if not step.routes:
        return [following]
    found = [position_of(route.goto, steps) for route in step.routes]
    after = [END if target is None else str(target) for target in found]
    if not any(route.branch == "default" for route in step.routes):
        after.append(END)
    if "skip" in (step.on_circuit_open, step.on_missing_skill):
        after.append(following)
    return after


def _reached_without(avoided: str, start: str, onward: Onward) -> set[str]:
    """Everything that can be reached without coming to one of the steps."""
    if start == avoided:
        return set()
    return reached([start], {name: [to for to in after if to != avoided] for name, after in onward.items()})


DANGEROUS = "dangerous"


def check_dangers(
    workflow: Workflow, resolved: Workflow, capabilities: Mapping[str, Capability], path: KeyPath, report: Report
) -> None:
    """Report everything dangerous that can happen without a person on the way to it."""
    dangerous = _dangerous_entries(capabilities)
    for name, trail in _trails_without_person(resolved).items():
        state, key = workflow.states[name], (*path, "states", name)
        if state.terminal:
            continue
        if any(_calls(place, dangerous) for place in executors_at(state.on_enter, (*key, "onEnter"))):
            report.add((*key, "onEnter", "executor"), _describe_trail(trail), "WF057")
        for way, transition in state.transitions.items():
            where = (*key, "transitions", way)
            runs = DANGEROUS in transition.tags or any(
                _calls(place, dangerous) for place in executors_at(transition, where)
            )
            if runs and not _has_person(resolved.states[name], resolved.states[name].transitions[way]):
                report.add(where, _describe_trail((*trail, way)), "WF057")


def _describe_trail(trail: tuple[str, ...]) -> str:
    steps = ", ".join(quoted(step) for step in trail) or "it is where the workflow begins"
    return f"nobody is asked on the way to it ({steps}); let a person take or approve one of them"


def _dangerous_entries(capabilities: Mapping[str, Capability]) -> frozenset[str]:
    """The entries that are tagged, or made from one that is."""
    steps = {name: list(made_from(entry, name)) for name, entry in capabilities.items()}
    tagged = {name for name, entry in capabilities.items() if DANGEROUS in entry.tags}
    return frozenset(name for name in capabilities if tagged & reached([name], steps))


def _calls(place: Place, names: frozenset[str]) -> bool:
    return any(one.target == "capability" and one.name in names for one in names_in(place.executor))


def _trails_without_person(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The states that can be reached without a person, each with the transitions that lead there."""
    start = workflow.initial_state
    if start is None or start not in workflow.states:
        return {}
    out: dict[str, list[Way]] = {}
    for way in ways(workflow):
        out.setdefault(way.source, []).append(way)
    trails: dict[str, tuple[str, ...]] = {start: ()}
    waiting = [start]
    for name in waiting:
        for way in out.get(name, ()):
            asked = way.transition is not None and _has_person(workflow.states[name], way.transition)
            if not asked and way.target not in trails:
                trails[way.target] = (*trails[name], way.name or "onTimeout")
                waiting.append(way.target)
    return trails


def _has_person(state: State, transition: Transition) -> bool:
    """Whether a person is asked before a transition is taken: on entry into its state, or for itself."""
    entering = None if state.on_enter is None else state.on_enter.executor
    return transition.actor == "human" or any(
        one is not None and kind_of(one).asks_person for one in (entering, transition.executor)
    )
