"""The page about operations shows what its commands print, and every metric and route."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from tests.cli.operated import use
from tests.docs.pages import DOCS, Block, blocks
from tests.docs.test_commands import environment, served
from tests.docs.test_commands import folder as folder
from waypost.api.api import ROUTES

PAGE: Final = DOCS / "operating.md"
KEY: Final = "wp_example-only-make-your-own"


def transcript() -> list[tuple[str, str | None]]:
    """Every command of the page, with the output it shows."""
    found = [block for block in blocks("sh", "json", "") if block.page == PAGE]
    following: list[Block | None] = [*found[1:], None]
    return [
        (block.text.strip(), after.text if after is not None and after.language != "sh" else None)
        for block, after in zip(found, following, strict=True)
        if block.language == "sh" and block.text.startswith("waypost ") and "serve" not in block.text
    ]


def squeezed(text: str) -> str:
    """A text without the blanks that align columns."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def agrees(shown: str, printed: str) -> bool:
    """Whether output is what the page shows; three dots stand for anything."""
    if shown.startswith("{"):
        return bool(json.loads(shown) == json.loads(printed))  # indented at a terminal, one line in a pipe
    pattern = re.escape(squeezed(shown)).replace(re.escape("..."), "(?:.|\n)*")
    return re.fullmatch(pattern, squeezed(printed)) is not None


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """The address of the hub of the page."""
    command = ("waypost", "serve", "operating.py:hub", "--port", "0")
    with served(*command, folder=folder, ready=r"ready at (http://127\.0\.0\.1:\d+)/mcp$") as (_, found):
        yield found


def test_the_commands_of_the_page_print_what_it_shows(address: str, folder: Path) -> None:
    assert use(f"{address}/mcp", "discard", {"item": "cup"}, KEY) == 200
    said = transcript()
    assert len(said) == 12
    for line, shown in said:
        run = subprocess.run(
            shlex.split(line),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
            check=False,
        )
        assert run.returncode == (1 if shown is not None and "deny" in shown and "policy" in line else 0), run.stdout
        assert shown is None or agrees(shown, run.stdout), (line, run.stdout)


def read(url: str, **headers: str) -> str:
    with urlopen(Request(url, headers=headers), timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_every_metric_is_on_the_page_and_no_other(address: str, folder: Path) -> None:
    key = json.loads((folder / ".waypost" / "hub.json").read_text())["key"]
    admin = {"Authorization": f"Bearer {key}"}
    there = set(re.findall(r"^# TYPE (\w+)", read(f"{address}/metrics", **admin), re.MULTILINE))
    assert set(re.findall(r"`(waypost_\w+)`", PAGE.read_text())) == there
    sections: dict[str, Any] = json.loads(read(f"{address}/metrics", Accept="application/json", **admin))
    assert all(f"`{section}`" in PAGE.read_text() for section in sections)


def test_every_route_is_on_the_page_and_no_other() -> None:
    page = (DOCS / "http-api.md").read_text()
    shown = set(re.findall(r"^\| `(\w+ /api/v1/[^`]+)` \|", page, re.MULTILINE))
    assert shown == {f"{route.method} {route.path}" for route in ROUTES.all}
