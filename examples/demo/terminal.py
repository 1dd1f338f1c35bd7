"""Screens of the demo: colour and columns at a terminal, plain text in a pipe."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import textwrap
from typing import Any, Final

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
TOKENS: Final = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<string>\"\"\".*?\"\"\"|f?\"[^\"\n]*\"|'[^'\n]*')|(?P<decorator>@[\w.]+)"
    r"|(?P<key>^[ \-]*[\w.]+(?=:(?: |$))|(?<=[{,] )\w+(?=: )|(?<=\{)\w+(?=: ))"
    r"|\b(?P<word>class|async|await|def|return|raise|if|is|None|for|in|import|from)\b",
    re.MULTILINE,
)
COLOURS: Final = {"comment": DIM, "string": GREEN, "decorator": YELLOW, "key": CYAN, "word": MAGENTA}
MORE: Final = "…"
"""A key that stands for the rest of an object."""
ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")


def to_lines(value: Any, width: int, indent: str = "") -> list[str]:
    """JSON that stays on one line where it fits, and is spread over lines where it does not."""
    flat = json.dumps(value, ensure_ascii=False).replace(f'"{MORE}": ""', MORE)
    if len(indent) + len(flat) <= width or not value or not isinstance(value, dict | list):
        return [f"{indent}{flat}"]
    pairs = value.items() if isinstance(value, dict) else [(None, item) for item in value]
    inner = f"{indent}  "
    found = [f"{indent}{'{' if isinstance(value, dict) else '['}"]
    for position, (key, item) in enumerate(pairs, 1):
        if key == MORE:
            found.append(f"{inner}{MORE}")
            continue
        label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        first, *rest = to_lines(item, width - len(label), inner)
        found += [f"{inner}{label}{first[len(inner) :]}", *rest]
        found[-1] += "," if position < len(value) else ""
    return [*found, f"{indent}{'}' if isinstance(value, dict) else ']'}"]


class Terminal:
    """Where the tour is shown; it waits for Enter only where a person can press it."""

    def __init__(self, once: bool) -> None:
        at_terminal = sys.stdout.isatty()
        self.interactive: Final = at_terminal and sys.stdin.isatty() and not once
        self._coloured: Final = at_terminal and "NO_COLOR" not in os.environ
        self._width: Final = min(shutil.get_terminal_size((100, 30)).columns, 110)

    def paint(self, text: str, *codes: str) -> str:
        """The text in a colour, if there are colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._coloured and text else text

    def line(self, text: str = "") -> None:
        """Print a line at once."""
        print(text, flush=True)

    def open(self, title: str, idea: str) -> None:
        """Begin a screen: its title, and the idea in a sentence or two."""
        if self.interactive:
            self.line("\x1b[2J\x1b[H")
        self.line(f"{self.paint(title, BOLD, BLUE)}\n{self.paint('─' * self._width, DIM)}")
        self.line("\n".join(textwrap.wrap(idea, self._width)) + "\n")

    def source(self, file: str, text: str) -> None:
        """Show the source that makes the exchanges below possible."""
        self.line(self.paint(f"  {file}", DIM))
        lines = [part for line in textwrap.dedent(text).strip("\n").splitlines() for part in self._wrap(line)]
        for line in self._highlight("\n".join(lines)).splitlines():
            self.line(f"  {self.paint('│', DIM)} {line}")
        self.line()

    def _wrap(self, line: str) -> list[str]:
        """A line of source within the gutter; what does not fit goes on below, indented."""
        further = " " * (len(line) - len(line.lstrip()) + 4)
        return textwrap.wrap(line, self._width - 4, subsequent_indent=further, drop_whitespace=True) or [""]

    def exchange(self, sent: str, arguments: Any, got: Any, *, refused: bool = False) -> None:
        """What the agent sent beside what it got."""
        half = self._width * 2 // 5
        left = [self.paint(f"agent ▸ {sent}", BOLD, YELLOW), *self._value(arguments, half)]
        head = self.paint("hub ✗", BOLD, RED) if refused else self.paint("hub ✓", BOLD, GREEN)
        right = [head, *self._value(got, self._width - half - 3)]
        if max(visible(line) for line in left) > half:
            self.line("\n".join([*left, *right, ""]))
            return
        for row in range(max(len(left), len(right))):
            one = left[row] if row < len(left) else ""
            other = right[row] if row < len(right) else ""
            self.line(f"{one}{' ' * (half - visible(one))} {self.paint('│', DIM)} {other}".rstrip())
        self.line()

    async def go_on(self, what: str = "Enter to go on") -> None:
        """Wait for Enter."""
        if self.interactive:
            await self.ask(self.paint(f"— {what}, Ctrl-C to stop —", DIM))

    async def ask(self, question: str) -> str:
        """The line that the person types; the end of the input stops the tour."""
        print(question, end=" ", flush=True)
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(sys.stdin.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sys.stdin.fileno())
        answer = os.read(sys.stdin.fileno(), 4096)
        if not answer:
            raise SystemExit("The input has ended.")
        return answer.decode(errors="replace").strip()

    async def ask_yes_or_no(self, question: str) -> bool:
        """Whether the person says yes; anything but yes or no, such as Enter alone, is asked again."""
        while (answer := (await self.ask(question)).lower()) not in ("y", "yes", "n", "no"):
            pass
        return answer.startswith("y")

    def _value(self, value: Any, width: int) -> list[str]:
        if value is None:
            return []
        if isinstance(value, str):
            return [part for line in value.splitlines() for part in textwrap.wrap(line, width) or [""]]
        return [
            self._highlight_json(part)
            for line in to_lines(value, width)
            for part in textwrap.wrap(line, width, subsequent_indent="    ", drop_whitespace=False)
        ]

    def _highlight(self, text: str) -> str:
        return TOKENS.sub(lambda found: self.paint(found[0], COLOURS[found.lastgroup or "word"]), text)

    def _highlight_json(self, line: str) -> str:
        return re.sub(
            r'("[^"]*")(:?)', lambda found: self.paint(found[1], CYAN if found[2] else GREEN) + found[2], line
        )


def visible(text: str) -> int:
    """The columns that a text takes."""
    return len(ESCAPES.sub("", text))
