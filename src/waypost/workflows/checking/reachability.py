"""Whether every state can be reached and left, and whether a workflow can run in circles by itself."""

from __future__ import annotations

from waypost.config.findings import KeyPath, quoted
from waypost.config.workflows import State, Transition, Workflow
from waypost.workflows.checking.flow import Way, backward, onward, reachable, reached, ways
from waypost.workflows.checking.report import Report


def check_reachability(workflow: Workflow, path: KeyPath, report: Report) -> None:
    """Note states nobody comes to, states nobody gets out of, and circles without a decision.

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
    """Whether a state is left without anybody deciding to."""
    return bool(state.transitions) and all(way.actor == "deterministic" for way in state.transitions.values())


def _check_circles(workflow: Workflow, here: set[str], states: KeyPath, report: Report) -> None:
    automatic = {name for name in here if _is_automatic(workflow.states[name])}

    def stays(way: Way) -> bool:
        return way.transition is not None and way.source in automatic and way.target in automatic

    steps = onward(ways(workflow), stays)
    told: set[str] = set()
    for name in workflow.states:
        ring = _ring(name, steps) if name not in told else None
        if ring is not None:
            told |= {other for other in reached([name], steps) if name in reached([other], steps)}
            shown = " → ".join(quoted(part) for part in ring)
            sentence = f"the workflow can go round by itself, {shown}; let somebody decide once, or lead out of it"
            report.add((*states, name), sentence, "WF053")


def _ring(start: str, steps: dict[str, list[str]]) -> list[str] | None:
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
