"""Play the tour in a pseudo terminal and draw its screens as one animated SVG, without any other program."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from examples.demo.ideas import IDEAS

ROOT: Final = Path(__file__).parents[2]
RECORDING: Final = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 100, 60
SECONDS: Final = 7
"""How long each screen is shown."""
CLEAR: Final = "\x1b[2J\x1b[H"
SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
PALETTE: Final = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76d9e6"}
ADVANCE, LEADING, MARGIN = 8.43, 18, 20
STYLE: Final = """\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9;white-space:pre}
.b{font-weight:bold}.d{fill:#8b949e}"""


class Run(NamedTuple):
    """Characters of one line in one style, from a column on."""

    column: int
    text: str
    classes: str


def play() -> str:
    """Everything that the tour prints to a person who presses Enter and approves."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "LOGNAME": "you", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    tour = subprocess.Popen(
        [sys.executable, "-m", "examples.demo.tour"], cwd=ROOT, stdin=slave, stdout=slave, env=environment
    )
    os.close(slave)
    seen, answered = "", 0
    try:
        while "docs/quick-start.md" not in seen:
            seen += os.read(master, 65536).decode(errors="replace")
            for question in re.findall(r"Ctrl-C to stop —|You decide \[y/n\]:", seen)[answered:]:
                os.write(master, b"y\n" if question.endswith(":") else b"\n")
                answered += 1
    finally:
        tour.terminate()
        tour.wait()
        os.close(master)
    return seen


def to_runs(screen: str) -> Iterator[list[Run]]:
    """The lines of a screen, wrapped as a terminal does."""
    classes, column, line = "", 0, list[Run]()
    for part in re.split(r"(\x1b\[[0-9;]*m|\n)", screen.replace("\r", "")):
        if part == "\n":
            yield line
            line, column = [], 0
        elif found := SGR.fullmatch(part):
            codes = found[1].split(";")
            names = {"1": "b", "2": "d", **{code: f"c{code}" for code in PALETTE}}
            classes = " ".join(names[code] for code in codes if code in names)
        while part and not part.startswith(("\n", "\x1b")):
            piece, part = part[: COLUMNS - column], part[COLUMNS - column :]
            line.append(Run(column, piece, classes))
            column += len(piece)
            if part:
                yield line
                line, column = [], 0
    yield line


def draw(printed: str) -> str:
    """The screens as frames of an SVG; a viewer that does not animate shows the one with the gate."""
    known = printed.replace(str(ROOT), "~/waypost")
    screens = [list(to_runs(screen.strip("\r\n"))) for screen in known.split(CLEAR) if screen.strip()]
    width = MARGIN * 2 + COLUMNS * ADVANCE
    height = MARGIN * 2 + LEADING * max(map(len, screens))
    colours = "".join(f".c{code}{{fill:{colour}}}" for code, colour in PALETTE.items())
    share = 100 / len(screens)
    motion = (
        f".f{{opacity:0;animation:f {SECONDS * len(screens)}s infinite}}"
        f"@keyframes f{{0%,{share:.3f}%{{opacity:1}}{share + 0.01:.3f}%,100%{{opacity:0}}}}"
        "@media(prefers-reduced-motion:reduce){.f{animation:none}.still{opacity:1}}"
    )
    frames = []
    for number, lines in enumerate(screens):
        still = " still" if any("waits for you" in run.text for run in lines[0]) else ""
        frames.append(f'<g class="f{still}" style="animation-delay:{(number - len(screens)) * SECONDS}s">')
        for row, runs in enumerate(lines):
            spans = "".join(
                f'<tspan x="{MARGIN + run.column * ADVANCE:.0f}"'
                + (f' class="{run.classes}"' if run.classes else "")
                + f">{escape(run.text, quote=False)}</tspan>"
                for run in runs
                if run.text.strip()
            )
            if spans:
                frames.append(f'<text y="{MARGIN + LEADING * row + 14}">{spans}</text>')
        frames.append("</g>")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>A recording of make demo: {escape(', '.join(IDEAS))}</title>",
            f"<style>{STYLE}{colours}{motion}</style>",
            '<rect width="100%" height="100%" rx="10" fill="#0d1117"/>',
            *frames,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the recording."""
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text(draw(play()))
    print(f"{RECORDING.relative_to(ROOT)}: {RECORDING.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
