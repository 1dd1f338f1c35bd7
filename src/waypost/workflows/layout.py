"""Where the boxes and arrows of a picture go: in layers, so that nothing lies on anything else.

Every second layer holds boxes, the layers between hold labels. An arrow that passes a layer has a place of its own in
it, so no arrow and no label can lie on a box. Arrows that lead back are laid out the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

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
    turned = _turned(len(boxes), arrows)
    down = [(b, a) if back else (a, b) for (a, b), back in zip(arrows, turned, strict=True)]
    depths = _depths(len(boxes), down)
    spots = [Spot(*size, 2 * depth) for size, depth in zip(boxes, depths, strict=True)]
    layers: list[list[Spot]] = [[] for _ in range(2 * max(depths, default=0) + 1)]
    for spot in spots:
        layers[spot.layer].append(spot)
    tracks = [
        Track(_track(spots[upper], spots[lower], label, layers), back)
        for (upper, lower), label, back in zip(down, labels, turned, strict=True)
    ]
    _order(layers)
    width, height = _place(layers)
    return Layout(spots, tracks, layers, width, height)


def _turned(count: int, arrows: Sequence[tuple[int, int]]) -> list[bool]:
    """Which arrows lead back to a box that they came through, looking from the first box on."""
    out: list[list[int]] = [[] for _ in range(count)]
    for arrow, (source, _) in enumerate(arrows):
        out[source].append(arrow)
    turned = [False] * len(arrows)
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


def _track(upper: Spot, lower: Spot, label: Size, layers: list[list[Spot]]) -> tuple[Spot, ...]:
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


def _order(layers: list[list[Spot]]) -> None:
    """Sort every layer by where its neighbours are, so that few arrows cross."""
    for layer in layers:
        _number(layer)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for layer in layers if downward else reversed(layers):
            layer.sort(key=lambda spot: _middle(spot.above if downward else spot.below, spot.x))
            _number(layer)


def _number(layer: list[Spot]) -> None:
    for number, spot in enumerate(layer):
        spot.x = number - (len(layer) - 1) / 2


def _middle(neighbours: list[Spot], otherwise: float) -> float:
    return sum(spot.x for spot in neighbours) / len(neighbours) if neighbours else otherwise


def _place(layers: list[list[Spot]]) -> Size:
    """Give every spot its place; the size of it all."""
    top = 0.0
    for layer in layers:
        height = max((spot.height for spot in layer), default=0.0)
        _settle(layer, [0.0] * len(layer))
        for spot in layer:
            spot.y = top + height / 2
        top += height + GAP
    for sweep in range(2 * _SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            _settle(layer, [_middle([*spot.above, *spot.below], spot.x) for spot in layer])
    everything = [spot for layer in layers for spot in layer]
    left = min((spot.x - spot.width / 2 for spot in everything), default=0.0)
    for spot in everything:
        spot.x -= left
    return max((spot.x + spot.width / 2 for spot in everything), default=0.0), max(top - GAP, 0.0)


def _settle(layer: list[Spot], wanted: list[float]) -> None:
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
