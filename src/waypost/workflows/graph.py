"""Diagrams of workflows: for Mermaid, for Graphviz, and drawn as SVG.

SVG is laid out in layers. Every second layer holds boxes, the layers between hold labels. An arrow that passes a layer
has a place of its own in it, so no arrow and no label can lie on a box. Arrows that lead back are laid out the other
way round.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from waypost.config.models import Step, Transition, Workflow
from waypost.workflows.definitions import TIMEOUT
from waypost.workflows.executors.kind import kind_of
from waypost.workflows.guards import label_of
from waypost.workflows.steps import COMPLETED, position_of, state_names, step_name

FORMATS: Final = ("mermaid", "dot", "svg")
END: Final = "finish"
ANY_STATE: Final = "any state"
_MARKS: Final = {"agent": "", "human": " (human)", "system": " (system)", "deterministic": " (auto)"}
_KEYWORDS: Final = frozenset({
    "state", "end", "note", "class", "classdef", "style", "direction", "as", "default", "hide", "empty", "description",
    "scale", "title", "click", "left", "right", "of", "acctitle", "accdescr", "tb", "bt", "lr", "rl",
})  # fmt: skip
"""Words with a meaning in Mermaid."""
_MAX_LABEL_CHARS: Final = 48


@dataclass(frozen=True, slots=True)
class Box:
    """A state, a step, or the symbol for any state."""

    id: str
    label: str
    kind: Literal["state", "terminal", "any"] = "state"
    state: str = ""
    """The state that it stands for, if any."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition from one box to another."""

    source: str
    target: str
    label: str
    actor: str = "agent"
    dangerous: bool = False
    transition: str | None = None
    """The name of the transition; none between steps, where the boxes alone say which move it is."""
    is_taken: bool = False
    """Whether the instance that is drawn went this way."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The boxes and arrows to draw."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    start: str | None
    current: str | None = None
    visited: frozenset[str] = frozenset()
    """The boxes that an instance has been in."""


Way = tuple[str | None, str, str]
"""A move of an instance: the state it left, the transition, and the state it came to."""


def picture(workflow: Workflow, current: str | None = None, taken: Collection[Way] = ()) -> Picture:
    """The boxes and arrows of a workflow; `current` is a state or step to highlight, `taken` the way to it."""
    shown = _picture_of_states(workflow, current) if workflow.states else _picture_of_steps(workflow, current)
    return shown if not taken else _mark_way(shown, taken)


def _mark_way(shown: Picture, taken: Collection[Way]) -> Picture:
    ids = {box.state: box.id for box in shown.boxes}
    # The symbol for any state is a box without a state, and so is where an instance comes from at its start.
    ways = {(ids.get(source) if source else None, ids.get(target), move) for source, move, target in taken}
    arrows = [replace(arrow, is_taken=True) if _is_way(arrow, ways) else arrow for arrow in shown.arrows]
    visited = {box for source, target, _ in ways for box in (source, target) if box is not None}
    return replace(shown, arrows=tuple(arrows), visited=frozenset(visited))


def _is_way(arrow: Arrow, ways: Collection[tuple[str | None, str | None, str]]) -> bool:
    # A timeout is one arrow, whichever state it left.
    return any(
        arrow.target == target
        and arrow.transition in (None, move)
        and (arrow.source == source or arrow.transition == TIMEOUT)
        for source, target, move in ways
    )


def mermaid(workflow: Workflow, current: str | None = None) -> str:
    """The workflow as a Mermaid state diagram."""
    shown = picture(workflow, current)
    lines = ["stateDiagram-v2"]
    names = {box.id: box.label if _is_plain(box.label) else box.id for box in shown.boxes}
    if len(set(names.values())) < len(names):
        names = {box.id: box.id for box in shown.boxes}
    for box in shown.boxes:
        name = names[box.id]
        lines.append(f"    {name}" if name == box.label else f'    state "{_escape_mermaid(box.label)}" as {name}')
    if shown.start is not None:
        lines.append(f"    [*] --> {names[shown.start]}")
    for arrow in shown.arrows:
        label = f" : {_escape_mermaid(arrow.label)}" if arrow.label else ""
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
    lines = [f"digraph {_quote_dot(shown.title)} {{", '    node [shape=box, style="rounded,filled", fillcolor=white];']
    if shown.start is not None:
        lines.append('    start [shape=point, width=0.15, label=""];')
    for box in shown.boxes:
        options = [f"label={_quote_dot(box.label)}"]
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
        options = [f"label={_quote_dot(arrow.label)}"]
        if arrow.actor in ("deterministic", "timeout"):
            options.append("style=dashed")
        if arrow.dangerous:
            options.append("color=red")
        lines.append(f"    {arrow.source} -> {arrow.target} [{', '.join(options)}];")
    return "\n".join([*lines, "}"]) + "\n"


def svg(workflow: Workflow, current: str | None = None) -> str:
    """The workflow as an SVG document."""
    return draw(picture(workflow, current))


def _picture_of_states(workflow: Workflow, current: str | None) -> Picture:
    ids = {name: f"s{number}" for number, name in enumerate(workflow.states, 1)}
    boxes = [
        Box(ids[name], name, "terminal" if state.terminal else "state", name) for name, state in workflow.states.items()
    ]
    arrows = [
        arrow
        for name, state in workflow.states.items()
        for way, transition in state.transitions.items()
        for arrow in _arrows(ids[name], way, transition, ids)
    ]
    if workflow.timeout_ms is not None and workflow.on_timeout is not None and workflow.on_timeout.target in ids:
        boxes.append(Box("any", ANY_STATE, "any"))
        label = f"after {_duration(workflow.timeout_ms)}"
        arrows.append(Arrow("any", ids[workflow.on_timeout.target], label, "timeout", transition=TIMEOUT))
    start = ids.get(workflow.initial_state or "")
    return Picture(workflow.title or "workflow", tuple(boxes), tuple(arrows), start, ids.get(current or ""))


def _arrows(source: str, name: str, transition: Transition, ids: dict[str, str]) -> Iterator[Arrow]:
    mark = (kind_of(transition.executor).mark if transition.executor is not None else "") or _MARKS[transition.actor]
    dangerous = "dangerous" in transition.tags
    for branch in transition.branches:
        if branch.target in ids:
            label = _cut_label(f"{name}{mark} if {label_of(branch.when)}")
            yield Arrow(source, ids[branch.target], label, transition.actor, dangerous, name)
    if transition.target in ids:
        otherwise = " otherwise" if transition.branches else ""
        label = _cut_label(f"{name}{mark}{otherwise}")
        yield Arrow(source, ids[transition.target], label, transition.actor, dangerous, name)


def _picture_of_steps(workflow: Workflow, current: str | None) -> Picture:
    steps = workflow.steps
    ids = [f"s{number}" for number in range(1, len(steps) + 1)]
    boxes, names = [], state_names(steps)
    for index, step in enumerate(steps):
        name, runs = step_name(step), step.skill or step.capability or ""
        label = _cut_label(f"{index + 1}. {name}" + (f": {runs}" if runs not in ("", name) else ""))
        boxes.append(Box(ids[index], label, state=names[index]))
    arrows = [
        Arrow(ids[index], target, label, "system")
        for index, step in enumerate(steps)
        for target, label in _routes(index, step, steps)
    ]
    boxes.append(Box(END, "end", "terminal", COMPLETED))
    here = next((ids[index] for index, step in enumerate(steps) if current and current == step_name(step)), None)
    return Picture(workflow.title or "workflow", tuple(boxes), tuple(arrows), ids[0] if ids else END, here)


def _routes(index: int, step: Step, steps: list[Step]) -> Iterator[tuple[str, str]]:
    if not step.routes:
        yield (f"s{index + 2}" if index + 1 < len(steps) else END), ""
        return
    for route in step.routes:
        target = position_of(route.goto, steps)
        yield (END if target is None else f"s{target}"), _cut_label(route.branch)
    if all(route.branch != "default" for route in step.routes):
        yield END, "otherwise"


def _duration(millis: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if millis >= size and millis % size == 0:
            return f"{millis // size} {unit}"
    return f"{millis} ms"


def _cut_label(text: str) -> str:
    return text if len(text) <= _MAX_LABEL_CHARS else f"{text[: _MAX_LABEL_CHARS - 1]}…"


def _is_plain(name: str) -> bool:
    """Whether a name can stand in a Mermaid diagram as it is."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None and name.lower() not in _KEYWORDS


def _escape_mermaid(text: str) -> str:
    """The text with everything that means something to Mermaid as a character code."""
    return re.sub(r"[^\w .,()$?!=/+*'-]", lambda found: f"#{ord(found[0])};", text)


def _quote_dot(text: str) -> str:
    plain = "".join(char if char.isprintable() else " " for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


GAP: Final = 26.0
"""Between neighbours of one layer, and between layers."""
_SWEEPS: Final = 8


@dataclass(slots=True)
class Spot:
    """A place in a layer, for a box, for a label, or for an arrow that passes."""

    width: float
    height: float
    layer: int
    x: float = 0.0
    y: float = 0.0
    """The middle."""
    above: list[Spot] = field(default_factory=list, repr=False)
    below: list[Spot] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Track:
    """The spots of one arrow from its upper to its lower end; the second one is its label's."""

    spots: tuple[Spot, ...]
    turned: bool
    """Whether the arrow points up."""

    @property
    def label(self) -> Spot:
        """Where its label is."""
        return self.spots[1]


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything in its place; `tracks` are in the order of the arrows."""

    boxes: list[Spot]
    tracks: list[Track]
    layers: list[list[Spot]]
    width: float
    height: float

    def top(self, spot: Spot) -> float:
        """The upper edge of the layer a spot is in."""
        return spot.y - max(other.height for other in self.layers[spot.layer]) / 2

    def bottom(self, spot: Spot) -> float:
        """The lower edge of the layer a spot is in."""
        return spot.y + max(other.height for other in self.layers[spot.layer]) / 2


Size = tuple[float, float]


def lay_out(boxes: Sequence[Size], arrows: Sequence[tuple[int, int]], labels: Sequence[Size]) -> Layout:
    """Places for boxes and arrows, given by their sizes and ends; an arrow leads from one box to another."""
    turned = _find_back_arrows(len(boxes), arrows)
    down = [(b, a) if back else (a, b) for (a, b), back in zip(arrows, turned, strict=True)]
    depths = _depths(len(boxes), down)
    spots = [Spot(*size, 2 * depth) for size, depth in zip(boxes, depths, strict=True)]
    layers: list[list[Spot]] = [[] for _ in range(2 * max(depths, default=0) + 1)]
    for spot in spots:
        layers[spot.layer].append(spot)
    tracks = [
        Track(_make_track(spots[upper], spots[lower], label, layers), back)
        for (upper, lower), label, back in zip(down, labels, turned, strict=True)
    ]
    _order_layers(layers)
    width, height = _place_spots(layers)
    return Layout(spots, tracks, layers, width, height)


def _find_back_arrows(count: int, arrows: Sequence[tuple[int, int]]) -> list[bool]:
    """Which arrows lead back to a box that they came through, looking from the first box on."""
    out: list[list[int]] = [[] for _ in range(count)]
    for arrow, (source, _) in enumerate(arrows):
        out[source].append(arrow)
    turned = [False] * len(arrows)
    # 0: not seen, 1: on the current way, 2: done.
    state = [0] * count
    for root in range(count):
        if state[root]:
            continue
        state[root] = 1
        stack = [(root, iter(out[root]))]
        while stack:
            box, rest = stack[-1]
            number = next(rest, None)
            if number is None:
                state[box] = 2
                stack.pop()
                continue
            target = arrows[number][1]
            turned[number] = state[target] == 1
            if state[target] == 0:
                state[target] = 1
                stack.append((target, iter(out[target])))
    return turned


def _depths(count: int, down: Sequence[tuple[int, int]]) -> list[int]:
    """How far below the top each box is: as far as the longest way to it."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for upper, lower in down:
        out[upper].append(lower)
        missing[lower] += 1
    depths = [0] * count
    ready = [box for box in range(count) if not missing[box]]
    for box in ready:
        for lower in out[box]:
            depths[lower] = max(depths[lower], depths[box] + 1)
            missing[lower] -= 1
            if not missing[lower]:
                ready.append(lower)
    # What nothing leads to goes next to where it leads; the first box stays on top.
    for box in set(range(1, count)) - {lower for _, lower in down}:
        depths[box] = max(min((depths[lower] for lower in out[box]), default=1) - 1, 0)
    return depths


def _make_track(upper: Spot, lower: Spot, label: Size, layers: list[list[Spot]]) -> tuple[Spot, ...]:
    track = [upper]
    for layer in range(upper.layer + 1, lower.layer):
        spot = Spot(*(label if len(track) == 1 else (0.0, 0.0)), layer)
        layers[layer].append(spot)
        track.append(spot)
    track.append(lower)
    for above, below in pairwise(track):
        above.below.append(below)
        below.above.append(above)
    return tuple(track)


def _order_layers(layers: list[list[Spot]]) -> None:
    """Sort every layer by where its neighbours are, so that few arrows cross."""
    for layer in layers:
        _assign_positions(layer)
    # The barycentre heuristic for layered drawings: a few sweeps, up and down, remove most crossings.
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for layer in layers if downward else reversed(layers):
            layer.sort(key=lambda spot: _mean_position(spot.above if downward else spot.below, spot.x))
            _assign_positions(layer)


def _assign_positions(layer: list[Spot]) -> None:
    for number, spot in enumerate(layer):
        spot.x = number - (len(layer) - 1) / 2


def _mean_position(neighbours: list[Spot], otherwise: float) -> float:
    return sum(spot.x for spot in neighbours) / len(neighbours) if neighbours else otherwise


def _place_spots(layers: list[list[Spot]]) -> Size:
    """Give every spot its place; the size of it all."""
    top = 0.0
    for layer in layers:
        height = max((spot.height for spot in layer), default=0.0)
        _spread_out(layer, [0.0] * len(layer))
        for spot in layer:
            spot.y = top + height / 2
        top += height + GAP
    for sweep in range(2 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _spread_out(layer, [_mean_position([*spot.above, *spot.below], spot.x) for spot in layer])
    everything = [spot for layer in layers for spot in layer]
    left = min((spot.x - spot.width / 2 for spot in everything), default=0.0)
    for spot in everything:
        spot.x -= left
    return max((spot.x + spot.width / 2 for spot in everything), default=0.0), max(top - GAP, 0.0)


def _spread_out(layer: list[Spot], wanted: list[float]) -> None:
    """Put the spots as near to where they want to be as their order and widths allow."""
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + GAP)
    # Neighbours that would lie on each other move as one block, to the mean of what its members want.
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, size = blocks.pop()
            mean, count = (mean * count + other * size) / (count + size), count + size
        blocks.append((mean, count))
    position = 0
    for mean, count in blocks:
        for index in range(position, position + count):
            layer[index].x = mean + offsets[index]
        position += count


MARGIN: Final = 24.0
_CHARACTER: Final = 7.6
_SMALL_CHARACTER: Final = 6.4
_LINE: Final = 18.0
_BOX_HEIGHT: Final = 38.0
_LOOP: Final = 30.0
"""How far an arrow from a box to itself reaches out."""
_HEAD: Final = 60.0
"""Room above for the title and the mark of the beginning."""
_COLOURS: Final = {
    "agent": "#1f5fbf", "human": "#a04800", "system": "#57606a", "deterministic": "#57606a", "timeout": "#8250df",
}  # fmt: skip
_DANGER: Final = "#c00020"
_STYLE: Final = (
    "text{font-family:Helvetica,Arial,sans-serif;fill:#1f2328}"
    ".label{font-size:11px}.name{font-size:13px}.title{font-size:15px;font-weight:bold}"
    ".box{fill:#f6f8fa;stroke:#57606a;stroke-width:1.5}.inner{fill:none;stroke:#57606a;stroke-width:1}"
    ".any{stroke-dasharray:4 3}.current{fill:#fff3bf;stroke:#a04800;stroke-width:3}"
    ".arrow{fill:none;stroke-width:1.5}.dashed{stroke-dasharray:5 4}"
)


def draw(picture: Picture, *, is_styled: bool = True) -> str:
    """The picture as an SVG document, or without a style sheet, background and title for a page that has its own."""
    # The beginning is looked at first, so that it comes to lie on top.
    boxes = sorted(picture.boxes, key=lambda box: box.id != picture.start)
    index = {box.id: number for number, box in enumerate(boxes)}
    loops = {box.id: [arrow for arrow in picture.arrows if arrow.source == arrow.target == box.id] for box in boxes}
    arrows = [arrow for arrow in picture.arrows if arrow.source != arrow.target]
    layout = lay_out(
        [_size(box, loops[box.id]) for box in boxes],
        [(index[arrow.source], index[arrow.target]) for arrow in arrows],
        [(text_width(arrow.label, _SMALL_CHARACTER) + 8, _LINE if arrow.label else 0.0) for arrow in arrows],
    )
    lines, labels = _draw_arrows(arrows, layout)
    parts = [*lines, *labels]
    for box, spot in zip(boxes, layout.boxes, strict=True):
        parts += _box(box, spot, loops[box.id], picture)
    if not is_styled:
        return _document(picture, parts, layout.width + 2 * MARGIN, layout.height + 2 * MARGIN + GAP, GAP, "")
    width = max(layout.width, text_width(picture.title, 9.0)) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + _HEAD
    return _document(picture, parts, width, height, _HEAD, f"<style>{_STYLE}</style>")


def text_width(text: str, character: float) -> float:
    """About how wide a text is."""
    return sum(character * (1.8 if east_asian_width(char) in "WF" else 1.0) for char in text)


def _document(picture: Picture, parts: list[str], width: float, height: float, head_height: float, style: str) -> str:
    markers = "".join(
        f'<marker id="to{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="12" markerHeight="12" '
        f'markerUnits="userSpaceOnUse" '
        f'orient="auto-start-reverse"><path d="M0 1L10 5L0 9z" class="tip to{colour[1:]}" fill="{colour}"/></marker>'
        for colour in sorted({*_COLOURS.values(), _DANGER})
    )
    ground = [
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
        f'<text class="title" x="{_n(MARGIN)}" y="{_n(MARGIN + 6)}">{_text(picture.title)}</text>',
    ]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-label={quoteattr(_clean(picture.title))}>',
        f"{style}<defs>{markers}</defs>",
        *(ground if style else ()),
        f'<g transform="translate({_n(MARGIN)} {_n(MARGIN + head_height)})">',
    ]
    return "\n".join([*head, *parts, "</g>", "</svg>"]) + "\n"


def _size(box: Box, loops: list[Arrow]) -> tuple[float, float]:
    """How much room a box needs; arrows to itself stand on both sides, so that its middle stays where it is."""
    loop_width = max((text_width(loop.label, _SMALL_CHARACTER) + _LOOP + 8 for loop in loops), default=0.0)
    return _box_width(box) + 2 * loop_width, max(_BOX_HEIGHT, len(loops) * _LINE + 10)


def _box_width(box: Box) -> float:
    return max(text_width(box.label, _CHARACTER) + 28, 72.0)


def _box(box: Box, spot: Spot, loops: list[Arrow], picture: Picture) -> list[str]:
    width, height = _box_width(box), spot.height
    left, top = spot.x - width / 2, spot.y - height / 2
    kind = " current" if box.id == picture.current else " any" if box.kind == "any" else ""
    kind += " visited" if box.id in picture.visited else ""
    parts = [_rect(left, top, width, height, 8, f"box{kind}")]
    if box.kind == "terminal":
        parts.append(_rect(left + 3, top + 3, width - 6, height - 6, 6, "inner"))
    parts.append(_words(spot.x, spot.y + 4.5, box.label, "name"))
    for number, loop in enumerate(loops):
        middle = spot.y + (number - (len(loops) - 1) / 2) * _LINE
        parts += _loop(left + width, middle, loop)
    if box.id == picture.start:
        parts.append(f'<circle cx="{_n(spot.x)}" cy="{_n(top - GAP)}" r="5" fill="#1f2328"/>')
        x = _n(spot.x)
        parts.append(_line(f"M{x} {_n(top - GAP + 5)}L{x} {_n(top)}", _COLOURS["system"], ""))
    return parts


def _loop(right: float, middle: float, arrow: Arrow) -> list[str]:
    out = _n(right + _LOOP)
    path = f"M{_n(right)} {_n(middle - 5)}C{out} {_n(middle - 9)} {out} {_n(middle + 9)} {_n(right)} {_n(middle + 5)}"
    label = f'<text class="label" x="{_n(right + _LOOP)}" y="{_n(middle + 4)}">{_text(arrow.label)}</text>'
    return [_line(path, _colour(arrow), _dashes(arrow)), label]


def _draw_arrows(arrows: list[Arrow], layout: Layout) -> tuple[list[str], list[str]]:
    leaving = _ports([track.spots[0] for track in layout.tracks], [track.spots[1] for track in layout.tracks])
    coming = _ports([track.spots[-1] for track in layout.tracks], [track.spots[-2] for track in layout.tracks])
    lines, labels = [], []
    for number, (arrow, track) in enumerate(zip(arrows, layout.tracks, strict=True)):
        lines.append(_line(_path(track, layout, leaving[number], coming[number]), _colour(arrow), _dashes(arrow)))
        if arrow.label:
            spot = track.label
            labels.append(_rect(spot.x - spot.width / 2, spot.y - _LINE / 2, spot.width, _LINE, 3, None))
            labels.append(_words(spot.x, spot.y + 4, arrow.label, "label"))
    return lines, labels


def _ports(ends: list[Spot], others: list[Spot]) -> list[float]:
    """Where each arrow touches its box: side by side, in the order in which they come."""
    places = [0.0] * len(ends)
    by_box: dict[int, list[int]] = {}
    for number, end in enumerate(ends):
        by_box.setdefault(id(end), []).append(number)
    for numbers in by_box.values():
        numbers.sort(key=lambda number: others[number].x)
        step = min(16.0, 56.0 / len(numbers))
        for rank, number in enumerate(numbers):
            places[number] = ends[number].x + (rank - (len(numbers) - 1) / 2) * step
    return places


def _path(track: Track, layout: Layout, leaves: float, comes: float) -> str:
    """A line through all spots of a track, straight inside of layers and bent between them."""
    spots = track.spots
    points = [(leaves, spots[0].y + spots[0].height / 2), (leaves, layout.bottom(spots[0]))]
    for spot in spots[1:-1]:
        points += [(spot.x, layout.top(spot)), (spot.x, layout.bottom(spot))]
    points += [(comes, layout.top(spots[-1])), (comes, spots[-1].y - spots[-1].height / 2)]
    if track.turned:
        points.reverse()
    text = f"M{_n(points[0][0])} {_n(points[0][1])}"
    for (x, y), (to_x, to_y) in pairwise(points):
        if (x, y) == (to_x, to_y):
            continue
        middle = (y + to_y) / 2
        bend = f"C{_n(x)} {_n(middle)} {_n(to_x)} {_n(middle)} {_n(to_x)} {_n(to_y)}"
        text += f"L{_n(to_x)} {_n(to_y)}" if x == to_x else bend
    return text


def _colour(arrow: Arrow) -> str:
    return _DANGER if arrow.dangerous else _COLOURS[arrow.actor]


def _dashes(arrow: Arrow) -> str:
    dashed = " dashed" if arrow.actor in ("deterministic", "timeout") else ""
    return f"{dashed} taken" if arrow.is_taken else dashed


def _line(path: str, colour: str, dashes: str) -> str:
    return (
        f'<path class="arrow{dashes} to{colour[1:]}" d="{path}" stroke="{colour}" marker-end="url(#to{colour[1:]})"/>'
    )


def _rect(x: float, y: float, width: float, height: float, radius: int, style: str | None) -> str:
    look = 'class="ground" fill="#ffffff"' if style is None else f'class="{style}"'
    return f'<rect {look} x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{radius}"/>'


def _words(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" text-anchor="middle" x="{_n(x)}" y="{_n(y)}">{_text(text)}</text>'


def _text(text: str) -> str:
    return escape(_clean(text))


def _clean(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return "".join(char if char.isprintable() else " " for char in text)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
