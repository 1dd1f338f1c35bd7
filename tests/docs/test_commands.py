"""The commands on the pages work and print what the pages show."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, Final
from urllib.request import Request, urlopen

import pytest

from tests.docs.pages import EXAMPLES, ROOT, Block, blocks
from waypost.cli.main import COMMANDS, build_parser

BIN: Final = Path(sys.executable).parent
HOME: Final = "/home/you"
TRANSCRIPTS: Final = {page: list(found) for page, found in groupby(blocks("console"), key=lambda block: block.page)}
LINES: Final = [(block, line) for block in blocks("sh") for line in block.text.splitlines()]
GOOD_HEALTH: Final = next(json.loads(block.text) for block in blocks("json") if '"status": "ok"' in block.text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples in it."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "work", ignore=shutil.ignore_patterns("__pycache__")))


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}


def replay(block: Block, folder: Path) -> str:
    """The output of the commands of a block, as a block."""
    printed = []
    for line in block.text.splitlines():
        if not line.startswith("$ "):
            continue
        run = subprocess.run(
            shlex.split(line[2:]),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        printed.append(f"{line}\n{run.stdout.replace(str(folder), HOME)}")
    return "".join(printed)


def agrees(shown: str, printed: str) -> bool:
    """Whether output is what a page shows; a line of three dots stands for any lines, dots elsewhere for any text."""
    pattern = "".join(
        "(?:.*\n)*" if line == "...\n" else re.escape(line).replace(re.escape("..."), ".*")
        for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, printed) is not None


@pytest.mark.timeout(300)  # a page may have thirty commands, each a process
@pytest.mark.parametrize("page", TRANSCRIPTS, ids=lambda page: page.name)
def test_a_transcript_is_what_the_commands_print(page: Path, folder: Path) -> None:
    for block in TRANSCRIPTS[page]:
        printed = replay(block, folder)
        assert agrees(block.text, printed), printed


def test_a_transcript_that_differs_is_noticed() -> None:
    assert agrees("$ a\n1\n...\n", "$ a\n1\n2\n3\n")
    assert agrees("$ a\n1\n", "$ a\n1\n")
    assert agrees("$ a\n(... bytes)\n", "$ a\n(12 bytes)\n")
    assert not agrees("$ a\n(... bytes)\n", "$ a\n(12\n bytes)\n")
    assert not agrees("$ a\n1\n", "$ a\n2\n")
    assert not agrees("$ a\n1\n", "$ a\n1\n2\n")


@pytest.mark.parametrize(
    "line", [line for _, line in LINES if line.startswith("waypost ")], ids=lambda line: line.replace(" ", "_")
)
def test_a_waypost_command_in_a_shell_block_parses(line: str) -> None:
    build_parser(*COMMANDS).parse_args(shlex.split(line.partition(" > ")[0])[1:])


def test_the_make_targets_in_shell_blocks_exist() -> None:
    targets = {line.split()[1] for _, line in LINES if line.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    assert {"demo", "test", "bench"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@contextmanager
def served(*command: str, folder: Path, ready: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process, and its address from the line that matches `ready`."""
    process = subprocess.Popen(
        [str(BIN / command[0]), *command[1:]], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        yield process, wait_for(process.stderr, ready)[1]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wait_for(stream: IO[str], pattern: str) -> re.Match[str]:
    seen = []
    for line in stream:
        if found := re.search(pattern, line):
            return found
        seen.append(line)
    raise AssertionError(f"nothing like {pattern!r} in {seen}")


def call(target: str, name: str, arguments: str, folder: Path) -> str:
    run = subprocess.run(
        [str(BIN / "waypost"), "call", target, name, arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_hub_of_the_readme_serves_over_http(folder: Path) -> None:
    ready = r"^arithmetic is ready at (http://127\.0\.0\.1:\d+)/mcp$"
    with served("waypost", "serve", "server.py:hub", "--port", "0", folder=folder, ready=ready) as (process, address):
        assert call(address, "add", '{"a": 1, "b": 2}', folder) == "3.0\n"
        with urlopen(f"{address}/health", timeout=60) as answer:
            health = json.load(answer)
            assert health == {**GOOD_HEALTH, "replica": health["replica"]}
        note = folder / ".waypost" / "hub.json"
        content = json.loads(note.read_text())
        assert content == {"url": address, "key": content["key"], "pid": process.pid, "workers": None}
        assert note.stat().st_mode & 0o777 == 0o600


def test_the_embedded_hub_runs_in_another_asgi_server(folder: Path) -> None:
    ready = r"running on (http://127\.0\.0\.1:\d+)"
    with served("uvicorn", "embedding:app", "--port", "0", folder=folder, ready=ready) as (_, address):
        assert call(address, "greet", '{"name": "Ada"}', folder) == "Hello, Ada.\n"
        allowed = Request(f"{address}/health", headers={"Host": "hub.example.com"})
        with urlopen(allowed, timeout=60) as answer:
            assert answer.status == 200


def test_a_changed_toolkit_is_served_and_a_broken_one_is_not(folder: Path) -> None:
    toolkit = folder / "configuration" / "tools.py"
    text = toolkit.read_text()
    command = ("waypost", "serve", "configuration/waypost.yaml", "--port", "0")
    with served(*command, folder=folder, ready=r"ready at (http://127\.0\.0\.1:\d+)/mcp$") as (process, address):
        assert process.stderr is not None
        toolkit.write_text(text.replace('f"Hello', 'f"Good day'))
        wait_for(process.stderr, r'"message": "the configuration was reloaded"')
        assert call(address, "hello", '{"name": "Ada"}', folder) == "Good day, Ada.\n"
        toolkit.write_text("this is no Python")
        wait_for(process.stderr, r'"level": "error", .*"message": "the configuration was not reloaded: .*\[CFG042\]"')
        assert call(address, "hello", '{"name": "Ada"}', folder) == "Good day, Ada.\n"
