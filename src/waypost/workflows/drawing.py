"""Pictures of workflows as SVG."""

from __future__ import annotations

from itertools import pairwise
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from waypost.workflows.graph import Arrow, Box, Picture
from waypost.workflows.layout import GAP, Layout, Spot, Track, lay_out

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


def draw(picture: Picture) -> str:
    """The picture as an SVG document."""
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
    lines, labels = _arrows(arrows, layout)
    parts = [*lines, *labels]
    for box, spot in zip(boxes, layout.boxes, strict=True):
        parts += _box(box, spot, loops[box.id], picture)
    width = max(layout.width, text_width(picture.title, 9.0)) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + _HEAD
    return _document(picture, parts, width, height)


def text_width(text: str, character: float) -> float:
    """About how wide a text is."""
    return sum(character * (1.8 if east_asian_width(char) in "WF" else 1.0) for char in text)


def _document(picture: Picture, parts: list[str], width: float, height: float) -> str:
    colours = sorted({*_COLOURS.values(), _DANGER})
    markers = "".join(
        f'<marker id="to{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0 1L10 5L0 9z" fill="{colour}"/></marker>'
        for colour in colours
    )
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-label={quoteattr(_clean(picture.title))}>',
        f"<style>{_STYLE}</style><defs>{markers}</defs>",
        f'<rect width="{_n(width)}" height="{_n(height)}" fill="#ffffff"/>',
        f'<text class="title" x="{_n(MARGIN)}" y="{_n(MARGIN + 6)}">{_text(picture.title)}</text>',
        f'<g transform="translate({_n(MARGIN)} {_n(MARGIN + _HEAD)})">',
    ]
    return "\n".join([*head, *parts, "</g>", "</svg>"]) + "\n"


def _size(box: Box, loops: list[Arrow]) -> tuple[float, float]:
    """How much room a box needs; arrows to itself stand on both sides, so that its middle stays where it is."""
    height = max(_BOX_HEIGHT, len(loops) * _LINE + 10)
    return _box_width(box) + 2 * _loop_width(loops), height


def _box_width(box: Box) -> float:
    return max(text_width(box.label, _CHARACTER) + 28, 72.0)


def _loop_width(loops: list[Arrow]) -> float:
    return max((text_width(loop.label, _SMALL_CHARACTER) + _LOOP + 8 for loop in loops), default=0.0)


def _box(box: Box, spot: Spot, loops: list[Arrow], picture: Picture) -> list[str]:
    width, height = _box_width(box), spot.height
    left, top = spot.x - width / 2, spot.y - height / 2
    kind = " current" if box.id == picture.current else " any" if box.kind == "any" else ""
    parts = [_rect(left, top, width, height, 8, f"box{kind}")]
    if box.kind == "terminal":
        parts.append(_rect(left + 3, top + 3, width - 6, height - 6, 6, "inner"))
    parts.append(_words(spot.x, spot.y + 4.5, box.label, "name"))
    for number, loop in enumerate(loops):
        middle = spot.y + (number - (len(loops) - 1) / 2) * _LINE
        parts += _loop(left + width, middle, loop)
    if box.id == picture.start:
        parts.append(f'<circle cx="{_n(spot.x)}" cy="{_n(top - GAP)}" r="5" fill="#1f2328"/>')
        parts.append(_line(f"M{_n(spot.x)} {_n(top - GAP + 5)}L{_n(spot.x)} {_n(top)}", _COLOURS["system"], ""))
    return parts


def _loop(right: float, middle: float, arrow: Arrow) -> list[str]:
    out = _n(right + _LOOP)
    path = f"M{_n(right)} {_n(middle - 5)}C{out} {_n(middle - 9)} {out} {_n(middle + 9)} {_n(right)} {_n(middle + 5)}"
    label = f'<text class="label" x="{_n(right + _LOOP)}" y="{_n(middle + 4)}">{_text(arrow.label)}</text>'
    return [_line(path, _colour(arrow), _dashes(arrow)), label]


def _arrows(arrows: list[Arrow], layout: Layout) -> tuple[list[str], list[str]]:
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
    return " dashed" if arrow.actor in ("deterministic", "timeout") else ""


def _line(path: str, colour: str, dashes: str) -> str:
    return f'<path class="arrow{dashes}" d="{path}" stroke="{colour}" marker-end="url(#to{colour[1:]})"/>'


def _rect(x: float, y: float, width: float, height: float, radius: int, style: str | None) -> str:
    look = 'fill="#ffffff"' if style is None else f'class="{style}"'
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
