"""Workflows as pictures: for Mermaid, for Graphviz, and drawn as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from waypost.config.executors import Human
from waypost.config.workflows import ExprGuard, Guard, JsonPathGuard, Step, Transition, Workflow
from waypost.workflows.steps import called, position_of

FORMATS: Final = ("mermaid", "dot", "svg")
END: Final = "finish"
ANY_STATE: Final = "any state"
_MARKS: Final = {"agent": "", "human": " (human)", "system": " (system)", "deterministic": " (auto)"}
_KEYWORDS: Final = frozenset(
    [
        "state",
        "end",
        "note",
        "class",
        "classdef",
        "style",
        "direction",
        "as",
        "default",
        "hide",
        "empty",
        "description",
        "scale",
        "title",
        "click",
        "left",
        "right",
        "of",
        "acctitle",
        "accdescr",
        "tb",
        "bt",
        "lr",
        "rl",
    ]
)
"""Words that mean something to Mermaid."""
_LONGEST_LABEL: Final = 48


@dataclass(frozen=True, slots=True)
class Box:
    """A state, a step, or what stands for several."""

    id: str
    label: str
    kind: Literal["state", "terminal", "any"] = "state"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from one box to another."""

    source: str
    target: str
    label: str
    actor: str = "agent"
    dangerous: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to draw."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    start: str | None
    current: str | None = None


def picture(workflow: Workflow, current: str | None = None) -> Picture:
    """What there is to draw of a workflow; `current` is a state or step to point out."""
    return _picture_of_states(workflow, current) if workflow.states else _picture_of_steps(workflow, current)


def mermaid(workflow: Workflow, current: str | None = None) -> str:
    """The workflow as a Mermaid state diagram."""
    shown = picture(workflow, current)
    lines = ["stateDiagram-v2"]
    names = {box.id: box.label if _is_plain(box.label) else box.id for box in shown.boxes}
    if len(set(names.values())) < len(names):
        names = {box.id: box.id for box in shown.boxes}
    for box in shown.boxes:
        name = names[box.id]
        lines.append(f"    {name}" if name == box.label else f'    state "{_for_mermaid(box.label)}" as {name}')
    if shown.start is not None:
        lines.append(f"    [*] --> {names[shown.start]}")
    for arrow in shown.arrows:
        label = f" : {_for_mermaid(arrow.label)}" if arrow.label else ""
        lines.append(f"    {names[arrow.source]} --> {names[arrow.target]}{label}")
    lines += [f"    {names[box.id]} --> [*]" for box in shown.boxes if box.kind == "terminal"]
    if shown.current is not None:
        lines += [
            "    classDef current fill:#fff3bf,stroke:#b35900,stroke-width:3px",
            f"    class {names[shown.current]} current",
        ]
    return "\n".join(lines) + "\n"


def dot(workflow: Workflow, current: str | None = None) -> str:
    """The workflow as a graph for Graphviz."""
    shown = picture(workflow, current)
    lines = [f"digraph {_for_dot(shown.title)} {{", '    node [shape=box, style="rounded,filled", fillcolor=white];']
    if shown.start is not None:
        lines.append('    start [shape=point, width=0.15, label=""];')
    for box in shown.boxes:
        options = [f"label={_for_dot(box.label)}"]
        if box.kind == "terminal":
            options.append("peripheries=2")
        if box.kind == "any":
            options.append('style="rounded,dashed"')
        if box.id == shown.current:
            options += ["fillcolor=lightyellow", "penwidth=3"]
        lines.append(f"    {box.id} [{', '.join(options)}];")
    if shown.start is not None:
        lines.append(f"    start -> {shown.start};")
    for arrow in shown.arrows:
        options = [f"label={_for_dot(arrow.label)}"]
        if arrow.actor in ("deterministic", "timeout"):
            options.append("style=dashed")
        if arrow.dangerous:
            options.append("color=red")
        lines.append(f"    {arrow.source} -> {arrow.target} [{', '.join(options)}];")
    return "\n".join([*lines, "}"]) + "\n"


def svg(workflow: Workflow, current: str | None = None) -> str:
    """The workflow as an SVG document."""
    from waypost.workflows.drawing import draw

    return draw(picture(workflow, current))


def _picture_of_states(workflow: Workflow, current: str | None) -> Picture:
    ids = {name: f"s{number}" for number, name in enumerate(workflow.states, 1)}
    boxes = [Box(ids[name], name, "terminal" if state.terminal else "state") for name, state in workflow.states.items()]
    arrows = [
        arrow
        for name, state in workflow.states.items()
        for called, transition in state.transitions.items()
        for arrow in _arrows(ids[name], called, transition, ids)
    ]
    if workflow.timeout_ms is not None and workflow.on_timeout is not None and workflow.on_timeout.target in ids:
        boxes.append(Box("any", ANY_STATE, "any"))
        label = f"after {_duration(workflow.timeout_ms)}"
        arrows.append(Arrow("any", ids[workflow.on_timeout.target], label, "timeout"))
    start = ids.get(workflow.initial_state or "")
    return Picture(workflow.title or "workflow", tuple(boxes), tuple(arrows), start, ids.get(current or ""))


def _arrows(source: str, name: str, transition: Transition, ids: dict[str, str]) -> Iterator[Arrow]:
    mark = " (approval)" if isinstance(transition.executor, Human) else _MARKS[transition.actor]
    dangerous = "dangerous" in transition.tags
    for branch in transition.branches:
        if branch.target in ids:
            label = _short(f"{name}{mark} if {_condition(branch.when)}")
            yield Arrow(source, ids[branch.target], label, transition.actor, dangerous)
    if transition.target in ids:
        otherwise = " otherwise" if transition.branches else ""
        label = _short(f"{name}{mark}{otherwise}")
        yield Arrow(source, ids[transition.target], label, transition.actor, dangerous)


def _condition(guard: Guard) -> str:
    return guard.expr if isinstance(guard, ExprGuard | JsonPathGuard) else str(type(guard).__struct_config__.tag)


def _picture_of_steps(workflow: Workflow, current: str | None) -> Picture:
    steps = workflow.steps
    ids = [f"s{number}" for number in range(1, len(steps) + 1)]
    boxes = [Box(ids[index], _step_label(index, step)) for index, step in enumerate(steps)]
    arrows = [
        Arrow(ids[index], target, label, "system")
        for index, step in enumerate(steps)
        for target, label in _routes(index, step, steps)
    ]
    boxes.append(Box(END, "end", "terminal"))
    here = next((ids[index] for index, step in enumerate(steps) if current and current == called(step)), None)
    return Picture(workflow.title or "workflow", tuple(boxes), tuple(arrows), ids[0] if ids else END, here)


def _routes(index: int, step: Step, steps: list[Step]) -> Iterator[tuple[str, str]]:
    if not step.routes:
        yield (f"s{index + 2}" if index + 1 < len(steps) else END), ""
        return
    for route in step.routes:
        target = position_of(route.goto, steps)
        yield (END if target is None else f"s{target}"), _short(route.branch)
    if all(route.branch != "default" for route in step.routes):
        yield END, "otherwise"


def _step_label(index: int, step: Step) -> str:
    name = called(step)
    runs = step.skill or step.capability or ""
    return _short(f"{index + 1}. {name}" + (f": {runs}" if runs and runs != name else ""))


def _duration(millis: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if millis >= size and millis % size == 0:
            return f"{millis // size} {unit}"
    return f"{millis} ms"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def _is_plain(name: str) -> bool:
    """Whether a name can stand in a Mermaid diagram as it is."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None and name.lower() not in _KEYWORDS


def _for_mermaid(text: str) -> str:
    """The text with everything that means something to Mermaid as a character code."""
    return re.sub(r"[^\w .,()$?!=/+*'-]", lambda found: f"#{ord(found[0])};", text)


def _for_dot(text: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
