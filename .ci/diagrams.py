"""Draw the diagrams of docs/diagrams.yaml as SVG: columns of boxes, arrows between them, frames around some."""

from __future__ import annotations

import re
import sys
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "docs" / "diagrams.yaml"
IMAGES: Final = ROOT / "docs" / "images"

CHARACTER, LINE, PADDING = 7.2, 17, 12
GAP_Y, MARGIN, LABEL = 22, 26, 6.4
STYLE: Final = (
    "text{font:13px Helvetica,Arial,sans-serif;fill:#1f2328}.s{font-size:11px;fill:#57606a}.h{font-weight:bold}"
    ".b{fill:#f6f8fa;stroke:#57606a;stroke-width:1.3}.k{fill:#e8f0fe;stroke:#1f5fbf}.p{fill:#fff3bf;stroke:#a04800}"
    ".g{fill:none;stroke:#8c959f;stroke-dasharray:5 4}.a{fill:none;stroke:#57606a;stroke-width:1.4}"
)
KINDS: Final = {"*": " k", "!": " p"}
"""A mark before a name: a part of Waypost, a person."""


class Box:
    """A box with its name in bold and further lines below it."""

    def __init__(self, text: str) -> None:
        self.kind = KINDS.get(text[:1], "")
        self.name, *self.rest = (text[1:] if self.kind else text).split("|")
        longest = max(len(self.name) * 1.06, *(len(line) * 0.88 for line in self.rest), 0)
        self.width = longest * CHARACTER + 2 * PADDING
        self.height = PADDING * 2 + LINE * (1 + len(self.rest)) - 6
        self.x = self.y = 0.0

    def draw(self) -> str:
        middle = self.x + self.width / 2
        texts = [
            f'<text class="h" text-anchor="middle" x="{middle:.0f}" y="{self.y + 23:.0f}">{escape(self.name)}</text>'
        ]
        texts += [
            f'<text class="s" text-anchor="middle" x="{middle:.0f}" y="{y:.0f}">{escape(line)}</text>'
            for y, line in zip(count(self.y + 23 + LINE, LINE), self.rest, strict=False)
        ]
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        return f'<rect class="b{self.kind}" x="{self.x:.0f}" y="{self.y:.0f}" {size} rx="7"/>{"".join(texts)}'


def place(columns: list[list[Box]], gaps: list[float]) -> tuple[float, float]:
    """Give every box its position, columns centred; returns width and height."""
    heights = [sum(box.height for box in column) + GAP_Y * (len(column) - 1) for column in columns]
    height = max(heights) + 2 * MARGIN
    x = float(MARGIN)
    for column, own, gap in zip(columns, heights, [*gaps, 0], strict=True):
        width = max(box.width for box in column)
        y = (height - own) / 2
        for box in column:
            box.width, box.x, box.y = width, x, y
            y += box.height + GAP_Y
        x += width + gap
    return x + MARGIN, height


def draw_arrow(one: Box, other: Box, label: str, both: bool) -> str:
    """An arrow between the sides that face each other."""
    if one.x == other.x:
        down = one.y < other.y
        x = one.x + one.width / 2
        start, end = (one.y + one.height, other.y - 2) if down else (one.y, other.y + other.height + 2)
        path, where = f"M{x:.0f} {start:.0f}L{x:.0f} {end:.0f}", (x + 8 + len(label) * LABEL / 2, (start + end) / 2)
    else:
        right = one.x < other.x
        x1, x2 = (one.x + one.width, other.x - 2) if right else (one.x, other.x + other.width + 2)
        y1, y2 = one.y + one.height / 2, other.y + other.height / 2
        half = (x1 + x2) / 2
        path, where = (
            f"M{x1:.0f} {y1:.0f}C{half:.0f} {y1:.0f} {half:.0f} {y2:.0f} {x2:.0f} {y2:.0f}",
            (half, (y1 + y2) / 2),
        )
    start_mark = ' marker-start="url(#t)"' if both else ""
    found = f'<path class="a" d="{path}" marker-end="url(#t)"{start_mark}/>'
    if label:
        width = len(label) * LABEL + 6
        x, y = where
        found += (
            f'<rect fill="#fff" x="{x - width / 2:.0f}" y="{y - 9:.0f}" width="{width:.0f}" height="17" rx="3"/>'
            f'<text class="s" text-anchor="middle" x="{x:.0f}" y="{y + 4:.0f}">{escape(label)}</text>'
        )
    return found


def draw_frame(label: str, boxes: list[Box]) -> str:
    """A dashed frame around boxes."""
    x, y = min(box.x for box in boxes) - 12, min(box.y for box in boxes) - 12
    width, height = max(box.x + box.width for box in boxes) + 12 - x, max(box.y + box.height for box in boxes) + 12 - y
    return (
        f'<rect class="g" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="9"/>'
        f'<text class="s" x="{x + 4:.0f}" y="{y - 4:.0f}">{escape(label)}</text>'
    )


def draw(title: str, spec: dict[str, Any]) -> str:
    """One diagram."""
    boxes: dict[str, Box] = {}
    columns = []
    where: dict[str, int] = {}
    for number, column in enumerate(spec["columns"]):
        columns.append([boxes.setdefault(key, Box(text)) for key, text in column.items()])
        where |= dict.fromkeys(column, number)
    arrows = []
    for text in spec.get("arrows", []):
        found = re.fullmatch(r"(\w+) (<?->) (\w+)(?:: (.+))?", text)
        assert found, text
        arrows.append((found[1], found[3], found[4] or "", found[2] == "<->"))
    gaps = [
        max([len(label) for one, other, label, _ in arrows if {where[one], where[other]} == {n, n + 1}], default=0)
        * LABEL
        + 40
        for n in range(len(columns) - 1)
    ]
    width, height = place(columns, gaps)
    frames = [draw_frame(label, [boxes[key] for key in keys]) for label, keys in spec.get("frames", {}).items()]
    paths = [draw_arrow(boxes[one], boxes[other], label, both) for one, other, label, both in arrows]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
            f' width="{width:.0f}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="t" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7"'
            ' orient="auto-start-reverse"><path d="M0 1L10 5L0 9z" fill="#57606a"/></marker></defs>',
            '<rect width="100%" height="100%" rx="8" fill="#fff"/>',
            *frames,
            *paths,
            *(box.draw() for box in boxes.values()),
            "</svg>\n",
        ]
    )


def drawings() -> dict[Path, str]:
    """The file of every diagram, and what belongs in it."""
    specs = yaml.safe_load(SOURCE.read_text())
    return {IMAGES / f"{name}.svg": draw(spec["title"], spec) for name, spec in specs.items()}


if __name__ == "__main__":
    for file, text in drawings().items():
        file.write_text(text)
    sys.stdout.write(f"{len(drawings())} diagrams in {IMAGES.relative_to(ROOT)}\n")
