"""Checks of workflows before the first one runs: names, references, the graph, and what runs without a person.

Those of guards, paths and templates are in `data_flow`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from waypost.capabilities.capability import read_header_parameters
from waypost.config import Config, Loaded
from waypost.config.findings import Finding, KeyPath, quoted
from waypost.config.models import (
    Capability,
    Connection,
    ExpandedCapability,
    ExpandedWorkflow,
    Expose,
    Import,
    ItemName,
    RestConnection,
    State,
    Step,
    Transition,
    Workflow,
)
from waypost.errors import DefinitionError
from waypost.workflows import data_flow
from waypost.workflows.data_flow import (
    Look,
    Place,
    Reader,
    Report,
    check_schema,
    executors_at,
    executors_of,
    find_reachable,
    group,
    list_properties,
    look_through,
    reachable,
    ways,
)
from waypost.workflows.definitions import PROXY, nearest, resolve, resolve_capability
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.kind import Reference, kind_of, names_in
from waypost.workflows.guards import kind as guards
from waypost.workflows.steps import position_of, step_name


def check_workflows(
    loaded: Loaded, known: Collection[str] | None, only: Collection[str] | None = None
) -> list[Finding]:
    """The findings about the workflows and capabilities of a configuration.

    `known` are the canonical names of the hub's capabilities; None if unknown, then names are not checked. With `only`,
    of the workflows just these are checked, beside the others.
    """
    report = Report(loaded, known)
    config = loaded.config
    check_capabilities(config.capabilities, report)
    for name, entry in config.capabilities.items():
        data_flow.check_capability(name, entry, report)
        if isinstance(entry, ExpandedCapability):
            data_flow.check_secrets(entry.written, ("capabilities", name), report)
        places = list(executors_at(entry, ("capabilities", name)))
        check_references(places, report)
        check_executors(places, report)
        data_flow.check_schema(entry.input_schema, ("capabilities", name, "inputSchema"), report)
    for name, workflow in config.workflows.items():
        if only is None or name in only:
            _check_workflow(name, workflow, report)
    check_circles(report)
    check_exposures(report)
    return report.findings


def _check_workflow(name: str, workflow: Workflow, report: Report) -> None:
    path, capabilities = ("workflows", name), report.config.capabilities
    check_structure(workflow, path, report)
    if isinstance(workflow, ExpandedWorkflow):
        data_flow.check_secrets(workflow.written, path, report)
    data_flow.check_schema(workflow.input_schema, (*path, "inputSchema"), report)
    check_steps(workflow, path, report)
    places = list(executors_of(workflow, path))
    check_references(places, report)
    check_executors(places, report)
    check_places(places, capabilities, report)
    for state, model in workflow.states.items():
        for called, transition in model.transitions.items():
            where = (*path, "states", state, "transitions", called, "inputSchema")
            data_flow.check_schema(transition.input_schema, where, report)
    data_flow.check_reading(workflow, path, report)
    resolved = workflow
    # What cannot be resolved was reported above; the checks below then use the workflow as written.
    with suppress(DefinitionError):
        resolved = resolve(workflow, capabilities)
    check_arguments(workflow, resolved, path, report)
    check_reachability(resolved, path, report)
    data_flow.check_data_flow(workflow, resolved, path, report)
    data_flow.check_satisfiability(workflow, resolved, path, report)
    check_dangers(workflow, resolved, path, report)


WORKFLOW_PREFIX = "workflow:"
SKILL_PREFIX = "skill:"


def check_references(places: Iterable[Place], report: Report) -> None:
    """Report every executor that names something that does not exist."""
    for place in places:
        for reference in names_in(place.executor):
            where = (*place.path, reference.key)
            match reference.target:
                case "capability":
                    _check_call(place, reference, report)
                case "workflow":
                    check_workflow_name(reference.name, where, report)
                case type() as kind:
                    _check_connection(reference.name, kind, where, report)


def check_executors(places: Iterable[Place], report: Report) -> None:
    """Report executors that are wrong wherever they stand."""
    for place in places:
        if (check := kind_of(place.executor).check) is not None:
            check(place.executor, place.path, report)
        data_flow.check_embedded_paths(place, report)
        data_flow.check_part(place, report)


def check_places(places: Iterable[Place], capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report executors that cannot run where they stand."""
    for place in look_through(places, capabilities):
        if (check := kind_of(place.executor).check_place) is not None:
            check(place.executor, place, report)


def check_capabilities(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report entries of `capabilities` that run nothing or contain themselves."""
    steps = {name: list(made_from(entry, name)) for name, entry in capabilities.items()}
    for name, entry in capabilities.items():
        path = ("capabilities", name)
        if entry.wraps is not None and entry.wraps not in capabilities:
            report.add_unknown((*path, "wraps"), "capability", entry.wraps, capabilities, "WF012")
            continue
        if entry.wraps is None and entry.executor is None:
            report.add(path, f"the capability {quoted(name)} runs nothing; give it `executor` or `wraps`", "WF013")
        if name in find_reachable(steps[name], steps):
            sentence = f"the capability {quoted(name)} contains itself; give it or one of its parts an executor"
            report.add((*path, "wraps" if entry.wraps is not None else "executor"), sentence, "WF013")


def check_capability_name(name: str, path: KeyPath, report: Report) -> None:
    """Report a call of an unknown capability."""
    known, config = report.known, report.config
    if name.startswith(WORKFLOW_PREFIX):
        check_workflow_name(name.removeprefix(WORKFLOW_PREFIX), path, report)
    elif known is not None and name not in known and not _may_be_offered_later(name, config):
        report.add_unknown(path, "capability", name, {*known, *config.capabilities}, "WF012")


def _may_be_offered_later(name: str, config: Config) -> bool:
    """Whether a name may be registered later: a skill, a function of a worker, or a tool of another server.

    A function is called by its id or its tool name (`a::b`, `a__b`).
    """
    if name.startswith(SKILL_PREFIX):
        return config.skills is not None and config.skills.dynamic is not None
    if config.workers is not None and ("::" in name or "__" in name):
        return True
    return any(may_bring(one, name, config.connections) for one in config.proxy.imports)


def may_bring(one: Import, name: str, connections: Mapping[str, Connection]) -> bool:
    """Whether an import may register a tool of that name; the tools of an OpenAPI document are already known."""
    prefix = f"{one.prefix or one.connection}."
    if not name.startswith(prefix) or isinstance(connections.get(one.connection), RestConnection):
        return False
    own = name.removeprefix(prefix)
    return own not in one.exclude and (not one.include or own in one.include)


def executors_in(config: Config) -> Iterator[Place]:
    """Every executor of a configuration."""
    for name, workflow in config.workflows.items():
        yield from executors_of(workflow, ("workflows", name))
    for name, entry in config.capabilities.items():
        yield from executors_at(entry, ("capabilities", name))
    for index, exposed in enumerate(config.proxy.expose):
        yield from executors_at(exposed, ("proxy", "expose", index))


def called_names(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Every capability name that a configuration calls, with its key."""
    for place in executors_in(config):
        for key, target, name in names_in(place.executor):
            if target == "capability" and name not in config.capabilities:
                yield (*place.path, key), name
    for name, workflow in config.workflows.items():
        for index, step in enumerate(workflow.steps):
            if step.capability is not None:
                yield ("workflows", name, "steps", index, "capability"), step.capability


def check_workflow_name(name: str, path: KeyPath, report: Report) -> None:
    """Report the name of an unknown workflow."""
    if name not in report.config.workflows:
        report.add_unknown(path, "workflow", name, report.config.workflows, "WF014")


def check_circles(report: Report) -> None:
    """Report workflows that start each other in a cycle."""
    starts = {name: dict(_started_workflows(name, report.config)) for name in report.config.workflows}
    for name, others in starts.items():
        for other, path in others.items():
            if name in find_reachable([other], starts):
                back = f"{quoted(other)} starts {quoted(name)} again" if other != name else "it would never end"
                sentence = f"{quoted(name)} starts {quoted(other)} and {back}; remove one of the starts"
                report.add(path, sentence, "WF015")


def _check_connection(name: str, wanted: type[Connection], path: KeyPath, report: Report) -> None:
    kind, connections = wanted.__struct_config__.tag, report.config.connections
    fitting = [other for other, connection in connections.items() if connection.__struct_config__.tag == kind]
    if name not in connections:
        report.add_unknown(path, "connection", name, fitting, "WF010")
    elif name not in fitting:
        other = connections[name].__struct_config__.tag
        sentence = f"the connection {quoted(name)} is of the kind `{other}`; name one of the kind `{kind}`"
        report.add(path, sentence, "WF011")


def _check_call(place: Place, reference: Reference, report: Report) -> None:
    path, name, call, capabilities = place.path, reference.name, place.executor, report.config.capabilities
    if name not in capabilities:
        check_capability_name(name, (*path, reference.key), report)
        return
    if isinstance(call, CapabilityCall) and call.arguments is not None:
        sentence = (
            f"{quoted(name)} is an entry of `capabilities` and takes no arguments here; "
            "put them into the capability's own executor"
        )
        report.add((*path, "arguments"), sentence, "WF016")
    # An entry that cannot be resolved is reported where it is written.
    with suppress(DefinitionError):
        on_entry = path[0] == "workflows" and path[4:5] == ("onEnter",)
        if on_entry and resolve_capability(name, capabilities).guards:
            sentence = f"{quoted(name)} has guards, which nothing checks here; run it in a transition"
            report.add((*path, reference.key), sentence, "WF017")


def made_from(entry: Capability, name: str) -> Iterator[str]:
    """The entries that an entry wraps or names."""
    if entry.wraps is not None:
        yield entry.wraps
    for place in executors_at(entry, ("capabilities", name)):
        yield from (one.name for one in names_in(place.executor) if one.target == "capability")


def _started_workflows(name: str, config: Config) -> Iterator[tuple[str, KeyPath]]:
    workflow, path = config.workflows[name], ("workflows", name)
    for place in look_through(executors_of(workflow, path), config.capabilities):
        for key, target, called in names_in(place.executor):
            if target == "workflow" or (target == "capability" and called.startswith(WORKFLOW_PREFIX)):
                yield called.removeprefix(WORKFLOW_PREFIX), place.path if place.via else (*place.path, key)
    for index, step in enumerate(workflow.steps):
        if step.capability is not None and step.capability.startswith(WORKFLOW_PREFIX):
            yield step.capability.removeprefix(WORKFLOW_PREFIX), (*path, "steps", index, "capability")


def check_exposures(report: Report) -> None:
    """Report entries of `proxy.expose` that cannot be offered."""
    for index, entry in enumerate(report.config.proxy.expose):
        path = ("proxy", "expose", index)
        if _check_form(entry, path, report):
            _check_entry(entry, path, report)


def _check_form(entry: Expose, path: KeyPath, report: Report) -> bool:
    """Whether an entry has the form of one of the two variants."""
    name, capabilities = entry.capability, report.config.capabilities
    if (entry.name is None) == (name is None):
        sentence = (
            "an entry has `name`, where it is written here, or `capability`, which names one; give one of the two"
        )
        report.add(path, sentence, "WF060")
    elif name is None and entry.as_ is not None:
        report.add((*path, "as"), "`as` is the name of a `capability`; what is written here has `name`", "WF060")
    elif name is not None and name not in capabilities:
        report.add_unknown((*path, "capability"), "capability", name, capabilities, "WF012")
    elif name is not None and entry.as_ is None and not _is_tool_name(name):
        report.add((*path, "capability"), f"{quoted(name)} is no name for a tool; give it one with `as`", "WF060")
    else:
        return True
    return False


def _is_tool_name(name: str) -> bool:
    try:
        msgspec.convert(name, ItemName)
    except msgspec.ValidationError:
        return False
    return True


def _check_entry(entry: Expose, path: KeyPath, report: Report) -> None:
    capabilities = report.config.capabilities
    places = [dataclasses.replace(place, exposed=True) for place in executors_at(entry, path)]
    check_references(places, report)
    check_executors(places, report)
    check_schema(entry.input_schema, (*path, "inputSchema"), report)
    _check_headers(entry.input_schema, (*path, "inputSchema"), report)
    inner = _resolve_named(entry, capabilities)
    if inner is None:
        return
    named = (*path, "capability")
    if entry.input_schema is None:
        _check_headers(inner.input_schema, named, report)
    of_inner = [dataclasses.replace(place, path=named, via="", exposed=True) for place in executors_at(inner, path)]
    every = [*look_through(places, capabilities), *of_inner]
    check_places(every, {}, report)
    for guard, where in [*((one, (*path, "guards")) for one in entry.guards), *((one, named) for one in inner.guards)]:
        if guards.kind_of(guard).needs_instance(guard):
            report.add(where, "only workflows have evidence, so this guard never holds", "WF061")
    for look in _looks(entry, inner, every, path, report):
        if look.path.root in ("context", "input", "workflow"):
            sentence = f"there is nothing at {quoted(look.path.text)} outside of a workflow; use `$.arguments`"
            report.add(look.key, sentence, "WF062")
        elif look.path.root == "arguments" and look.path.keys:
            _check_argument(str(look.path.keys[0]), entry.input_schema or inner.input_schema, look.key, report)
    for key, name in (found for place in every for found in data_flow.lookups_in(place)):
        _check_argument(name, entry.input_schema or inner.input_schema, key, report)


def _check_argument(name: str, schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    """Report an argument that callers of an exposed tool cannot give, or do not learn of."""
    given = list_properties(schema)
    if schema is None:
        sentence = f"`$.arguments.{name}` does not exist: without `inputSchema` the tool has no arguments; add it"
        report.add(key, sentence, "WF063")
    elif given is not None and name not in given:
        report.add(key, f"`$.arguments.{name}` does not exist; {nearest(name, given)}", "WF054")


def _resolve_named(entry: Expose, capabilities: Mapping[str, Capability]) -> Capability | None:
    """The capability that an entry names, an empty one if it names none, `None` if it cannot be resolved."""
    if entry.capability is None:
        return Capability()
    try:
        found = resolve_capability(entry.capability, capabilities)
    except DefinitionError:  # it was noted where it is written
        return None
    return found if entry.executor is None else replace(found, executor=None)


def _check_headers(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    if schema is None:
        return
    try:
        read_header_parameters(schema)
    except DefinitionError as error:
        report.add(key, error.message, "WF031")


def _looks(entry: Expose, inner: Capability, places: list[Place], path: KeyPath, report: Report) -> Iterator[Look]:
    yield from Reader(report).guards(entry.guards, (*path, "guards"))
    named = (*path, "capability")
    yield from (Look(named, look.path) for look in Reader().guards(inner.guards, named))
    for place in places:
        # What is wrong with a capability is said where it is written.
        yield from Reader(report if place.via is None else None).executor(place)


def check_structure(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report names, targets and combinations of fields that are not possible."""
    if workflow.on_timeout is not None and workflow.timeout_ms is None:
        report.add((*path, "onTimeout"), "there is no timeout; add `timeoutMs`", "WF004")
    if path[-1] == PROXY:
        sentence = f"{quoted(PROXY)} is the built-in workflow for single capabilities; rename the workflow"
        report.add(path, sentence, "WF005")
    if not workflow.states and not workflow.steps:
        report.add(path, "the workflow has neither `states` nor `steps`; add one of them", "WF001")
    if workflow.states and workflow.steps:
        report.add((*path, "steps"), "the workflow has `states` and `steps`; keep one of them", "WF001")
    if not workflow.states:
        return
    if workflow.initial_state is None:
        report.add(path, "the workflow has no initial state; add `initialState`", "WF002")
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
            _check_state_name(workflow, transition.target, (*where, "transitions", way, "target"), report)
            for index, branch in enumerate(transition.branches):
                key = (*where, "transitions", way, "branches", index, "target")
                _check_state_name(workflow, branch.target, key, report)


def check_arguments(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report deterministic transitions that require arguments: no caller gives any."""
    for state, model in resolved.states.items():
        for name, transition in model.transitions.items():
            if transition.actor != "deterministic" or not _required_arguments(transition.input_schema or {}):
                continue
            where = (*path, "states", state, "transitions", name)
            own = workflow.states[state].transitions[name].input_schema is not None
            sentence = (
                f"{quoted(name)} is taken automatically, so no caller gives the arguments that its schema requires; "
                "give them defaults or let an agent take it"
            )
            report.add((*where, "inputSchema" if own else "executor"), sentence, "WF008")


def _required_arguments(schema: dict[str, Any]) -> list[Any]:
    """The required arguments without a default."""
    required, properties = schema.get("required"), schema.get("properties")
    filled = {
        name
        for name, inner in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(inner, dict) and "default" in inner
    }
    return [name for name in required if name not in filled] if isinstance(required, list) else []


def _check_state_name(workflow: Workflow, name: str, path: KeyPath, report: Report) -> None:
    if name not in workflow.states:
        report.add_unknown(path, "state", name, workflow.states, "WF003")


def _check_reserved_name(name: str, kind: str, path: KeyPath, report: Report) -> None:
    if name.startswith("$"):
        report.add(path, f"names that begin with `$` are reserved; rename the {kind}", "WF005")


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
        report.add(
            (*path, "outcome"), f"{quoted(name)} is not terminal; add `terminal: true` or remove `outcome`", "WF007"
        )


def check_reachability(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report states that cannot be reached or left, and cycles without a decision, in a resolved workflow."""
    if workflow.initial_state not in workflow.states:
        return
    here = reachable(workflow)
    states = (*path, "states")
    for name in workflow.states:
        if name not in here:
            sentence = f"{quoted(name)} cannot be reached; add a transition to it, or remove it"
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
            sentence = f"{quoted(name)} cannot be left and is not terminal; add `terminal: true` or a transition"
            report.add((*states, name), sentence, "WF051")
    if not terminal:
        if not dead:
            report.add(states, "no state is terminal; give one `terminal: true`", "WF052")
        return
    ending = find_reachable(terminal, group((way.target, way.source) for way in ways(workflow)))
    for name in workflow.states:
        if name in here and name not in ending and name not in dead:
            sentence = f"no terminal state can be reached from {quoted(name)}; add a transition that leads to one"
            report.add((*states, name), sentence, "WF052")


def _check_circles(workflow: Workflow, here: set[str], states: KeyPath, report: Report) -> None:
    automatic = {
        name
        for name in here
        if (out := workflow.states[name].transitions) and all(one.actor == "deterministic" for one in out.values())
    }
    steps = group(
        (way.source, way.target)
        for way in ways(workflow)
        if way.transition is not None and way.source in automatic and way.target in automatic
    )
    reported: set[str] = set()
    for name in workflow.states:
        ring = _shortest_circle(name, steps) if name not in reported else None
        if ring is not None:
            reported |= {other for other in find_reachable([name], steps) if name in find_reachable([other], steps)}
            shown = " → ".join(quoted(part) for part in ring)
            sentence = f"the workflow can loop without a decision, {shown}; let a caller decide once, or add a way out"
            report.add((*states, name), sentence, "WF053")


def _shortest_circle(start: str, steps: dict[str, list[str]]) -> list[str] | None:
    """The shortest cycle from a state back to itself."""
    before: dict[str, str] = {}
    waiting = [start]
    # The list grows while it is iterated: a breadth-first search.
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
    free = [
        name
        for name, way in state.transitions.items()
        if way.actor == "deterministic" and not way.guards and not (way.evidence and way.evidence.requires)
    ]
    for name in free[1:]:
        sentence = (
            f"{quoted(name)} and {quoted(free[0])} are both taken automatically and have no guards; "
            "give all but one of them guards"
        )
        report.add((*transitions, name), sentence, "WF056")


Onward: TypeAlias = dict[str, list[str]]
END: Final = "end"


def check_steps(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Report steps with unknown names, inputs that do not exist yet, and loops."""
    named: dict[str, int] = {}
    onward = {str(place): _following_steps(place, workflow.steps) for place in range(1, len(workflow.steps) + 1)}
    for place, step in enumerate(workflow.steps, 1):
        where = (*path, "steps", place - 1)
        _check_step(step, where, report)
        if step.capability is not None and step.capability in report.config.capabilities:
            sentence = f"{quoted(step.capability)} is an entry of `capabilities`, which only transitions can run"
            report.add((*where, "capability"), sentence, "WF012")
        elif step.capability is not None:
            check_capability_name(step.capability, (*where, "capability"), report)
        if step.input_from is not None:
            source = _check_step_reference(step.input_from, workflow.steps, (*where, "input_from"), report)
            if source is not None and (source == place or str(place) not in find_reachable([str(source)], onward)):
                sentence = f"step {source} has not run when step {place} starts; name an earlier step"
                report.add((*where, "input_from"), sentence, "WF045")
        for number, route in enumerate(step.routes):
            target = _check_step_reference(route.goto, workflow.steps, (*where, "routes", number, "goto"), report)
            if target is not None and target <= place:
                _check_way_back(place, target, onward, (*where, "routes", number, "goto"), report)
        name = step_name(step)
        if name and named.setdefault(name, place) != place:
            sentence = f"step {named[name]} is also called {quoted(name)}; give one of them another `name`"
            report.add((*where, "name"), sentence, "WF041")


def _check_step(step: Step, path: KeyPath, report: Report) -> None:
    if step.skill is None and step.capability is None:
        report.add(path, "the step runs nothing; add `skill` or `capability`", "WF042")
    elif step.skill is not None and step.capability is not None:
        report.add((*path, "capability"), "the step runs a skill and a capability; keep one of them", "WF042")
    if step.on_circuit_open == "fallback" and step.fallback_skill is None:
        report.add((*path, "on_circuit_open"), "there is no fallback; add `fallback_skill`", "WF043")


def _check_step_reference(reference: str | int, steps: list[Step], path: KeyPath, report: Report) -> int | None:
    """The position of a step by its name or position, from 1."""
    place = position_of(reference, steps)
    if place is None and isinstance(reference, int):
        report.add(path, f"there is no step {reference}; positions go from 1 to {len(steps)}", "WF040")
    elif place is None:
        report.add_unknown(path, "step", str(reference), filter(None, map(step_name, steps)), "WF040")
    return place


def _check_way_back(place: int, target: int, onward: Onward, path: KeyPath, report: Report) -> None:
    """Report a route back to a step that has run; a route back to a skipped step is fine."""
    came = str(place) in _reached_without(str(target), "1", onward)
    goes_on = END in _reached_without(str(place), str(target), onward)
    if target == place or not came or not goes_on:
        sentence = f"step {target} is repeated, and an instance that reaches a step twice fails; go to a later step"
        report.add(path, sentence, "WF044")


def _following_steps(place: int, steps: list[Step]) -> list[str]:
    """The steps that can follow a step, or the end."""
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
    """Everything that can be reached without passing one step."""
    if start == avoided:
        return set()
    return find_reachable([start], {name: [to for to in after if to != avoided] for name, after in onward.items()})


DANGEROUS = "dangerous"


def check_dangers(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report dangerous transitions that can be reached without the decision of a person."""
    capabilities = report.config.capabilities
    steps = {name: list(made_from(entry, name)) for name, entry in capabilities.items()}
    tagged = {name for name, entry in capabilities.items() if DANGEROUS in entry.tags}
    dangerous = frozenset(name for name in capabilities if tagged & find_reachable([name], steps))
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
    return f"no person decides on the way to it ({steps}); let a person take or approve one of them"


def _calls(place: Place, names: frozenset[str]) -> bool:
    return any(one.target == "capability" and one.name in names for one in names_in(place.executor))


def _trails_without_person(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The states that are reachable without a person, each with the transitions that lead there."""
    start = workflow.initial_state
    if start is None or start not in workflow.states:
        return {}
    out = group((way.source, way) for way in ways(workflow))
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
    """Whether a person decides before a transition is taken: when its state is entered, or about itself."""
    entering = None if state.on_enter is None else state.on_enter.executor
    return transition.actor == "human" or any(
        one is not None and kind_of(one).asks_person for one in (entering, transition.executor)
    )
