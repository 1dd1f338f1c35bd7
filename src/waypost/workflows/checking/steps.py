"""Whether the steps of a workflow hang together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from waypost.config import Config
from waypost.config.findings import KeyPath, quoted
from waypost.config.workflows import Step, Workflow
from waypost.workflows.checking.flow import reached
from waypost.workflows.checking.references import check_capability_name
from waypost.workflows.checking.report import Report
from waypost.workflows.resolving import nearest
from waypost.workflows.steps import called, position_of

Onward: TypeAlias = dict[str, list[str]]
END: Final = "end"


def check_steps(
    workflow: Workflow, config: Config, path: KeyPath, known: Collection[str] | None, report: Report
) -> None:
    """Note what is wrong with the steps of a workflow."""
    named: dict[str, int] = {}
    onward = {str(place): _after(place, workflow.steps) for place in range(1, len(workflow.steps) + 1)}
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
            target = _check_known(route.goto, workflow.steps, (*where, "routes", number, "goto"), report)
            if target is not None and target <= place:
                _check_way_back(place, target, onward, (*where, "routes", number, "goto"), report)
        name = called(step)
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


def _check_known(reference: str | int, steps: list[Step], path: KeyPath, report: Report) -> int | None:
    """The position of a step that is named, from 1."""
    place = position_of(reference, steps)
    if place is None and isinstance(reference, int):
        report.add(path, f"there is no step {reference}; positions go from 1 to {len(steps)}", "WF040")
    elif place is None:
        names = [name for name in map(called, steps) if name]
        report.add(path, f"there is no step {quoted(str(reference))}; {nearest(str(reference), names)}", "WF040")
    return place


def _check_source(
    reference: str | int, place: int, steps: list[Step], onward: Onward, path: KeyPath, report: Report
) -> None:
    source = _check_known(reference, steps, path, report)
    if source is not None and (source == place or str(place) not in reached([str(source)], onward)):
        sentence = f"step {source} has not run when step {place} begins; name one that comes before it"
        report.add(path, sentence, "WF045")


def _check_way_back(place: int, target: int, onward: Onward, path: KeyPath, report: Report) -> None:
    """A run fails when it comes to a step again, so a way back is only good for what was jumped over."""
    came = str(place) in _avoiding(str(target), "1", onward)
    goes_on = END in _avoiding(str(place), str(target), onward)
    if target == place or not came or not goes_on:
        sentence = f"step {target} comes again, and a run that comes to a step twice fails; lead to a later step"
        report.add(path, sentence, "WF044")


def _after(place: int, steps: list[Step]) -> list[str]:
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


def _avoiding(avoided: str, start: str, onward: Onward) -> set[str]:
    """Everything that can be reached without coming to one of the steps."""
    if start == avoided:
        return set()
    return reached([start], {name: [to for to in after if to != avoided] for name, after in onward.items()})
