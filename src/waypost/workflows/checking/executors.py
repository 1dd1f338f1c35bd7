"""Whether executors fit together in themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from waypost.config.executors import Cli, Human, JoinSome, Parallel, Reliability, Script
from waypost.config.findings import KeyPath, quoted
from waypost.config.workflows import Capability, Workflow
from waypost.workflows.checking.places import Place, Report, followed
from waypost.workflows.executors.building import DEEPEST
from waypost.workflows.scope import is_path


def check_executors(places: Iterable[Place], report: Report) -> None:
    """Note executors that lack something, or have too much."""
    for place in places:
        executor, path = place.executor, place.path
        if isinstance(executor, Cli):
            _check_cli(executor, path, report)
        elif isinstance(executor, Script):
            _check_script(executor, path, report)
        elif isinstance(executor, Parallel):
            _check_parallel(executor, path, report)


def check_depth(places: Iterable[Place], capabilities: Mapping[str, Capability], report: Report) -> None:
    """Note parallel executors that stand too deep inside each other."""
    for place in followed(iter(places), capabilities):
        if isinstance(place.executor, Parallel) and place.depth == DEEPEST:
            sentence = f"parallel executors stand at most {DEEPEST} deep inside each other; start a workflow instead"
            report.add(place.path, sentence, "WF021")


def check_people(places: Iterable[Place], capabilities: Mapping[str, Capability], report: Report) -> None:
    """Note people who would have to be waited for inside of something else."""
    for place in followed(iter(places), capabilities):
        if isinstance(place.executor, Human) and place.within:
            inside = " or ".join(f"`{kind}`" for kind in sorted(place.within))
            sentence = f"nobody can be waited for inside of {inside}; ask in a transition of its own"
            report.add(place.path, sentence, "WF023")


def check_patience(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Note what is done about failures of people, who do not fail."""
    for name, state in workflow.states.items():
        where = (*path, "states", name)
        after = resolved.states[name]
        if state.on_enter is not None and after.on_enter is not None:
            _check_reliability(state.on_enter.reliability, after.on_enter.executor, (*where, "onEnter"), report)
        for called, transition in state.transitions.items():
            executor = after.transitions[called].executor
            _check_reliability(transition.reliability, executor, (*where, "transitions", called), report)


def _check_reliability(reliability: Reliability | None, executor: object, path: KeyPath, report: Report) -> None:
    if reliability is not None and isinstance(executor, Human):
        sentence = "people are neither retried nor replaced; remove it, and use `expiresMs` for how long they may take"
        report.add((*path, "reliability"), sentence, "WF058")


def _check_cli(executor: Cli, path: KeyPath, report: Report) -> None:
    if executor.command is None and executor.connection is None:
        report.add(path, "there is no program to run; add `command` or `connection`", "WF020")
    elif executor.command is not None and executor.connection is not None:
        report.add((*path, "command"), "the connection has a command already; keep one of the two", "WF020")


def _check_script(executor: Script, path: KeyPath, report: Report) -> None:
    try:
        content = Path(executor.file).read_bytes()
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        report.add((*path, "file"), f"the script cannot be read: {reason}; check the path", "WF024")
        return
    digest = hashlib.sha256(content).hexdigest()
    if digest != executor.sha256:
        sentence = f"the script is not the one that was approved; if it should be, write {quoted(digest)}"
        report.add((*path, "sha256"), sentence, "WF024")


def _check_parallel(executor: Parallel, path: KeyPath, report: Report) -> None:
    listed = bool(executor.branches)
    repeated = executor.for_each is not None or executor.do is not None
    if listed and repeated:
        report.add(path, "there are `branches` and `forEach` with `do`; keep one form", "WF021")
    elif not listed and (executor.for_each is None or executor.do is None):
        report.add(path, "there is nothing to run; add `branches`, or `forEach` together with `do`", "WF021")
    elif isinstance(executor.for_each, str) and not is_path(executor.for_each):
        sentence = (
            f"{quoted(executor.for_each)} is neither a list nor a path to one; write a path such as `$.input.items`"
        )
        report.add((*path, "forEach"), sentence, "WF021")
    else:
        _check_join(executor, path, report)


def _check_join(executor: Parallel, path: KeyPath, report: Report) -> None:
    join = executor.join
    if not isinstance(join, JoinSome):
        return
    if (join.at_least is None) == (join.percent is None):
        report.add((*path, "join"), "the join says neither or both of two things; give `atLeast` or `percent`", "WF022")
        return
    count = len(executor.for_each) if isinstance(executor.for_each, list) else len(executor.branches)
    if join.at_least is not None and not isinstance(executor.for_each, str) and join.at_least > count:
        sentence = f"{join.at_least} have to succeed and there are only {count}; ask for {count} or fewer"
        report.add((*path, "join"), sentence, "WF022")
