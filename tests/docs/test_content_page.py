"""The page about markdown skills and prompts: its worker runs, its commands print what it shows, its rules hold."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.shell import Serving, environment, serving
from tests.docs.pages import DOCS, EXAMPLES, Block, blocks
from tests.docs.test_commands import BIN
from tests.docs.test_operating import agrees
from tests.interop.iii_clients import Client
from waypost.documents import content, uris
from waypost.documents.documents import TRIGGER_TYPES
from waypost.workers.functions import is_internal

PAGE: Final = DOCS / "content.md"
TEXT: Final = PAGE.read_text()
BLOCKS: Final = [block for block in blocks("sh", "json", "") if block.page == PAGE]
SETTINGS: Final = 'version: "1"\nserver: {name: desk, surface: full}\nworkers: {port: 0}\n'


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    """A hub, its folder, and the worker of the page connected to it."""
    folder = tmp_path_factory.mktemp("content")
    (folder / "hub.yaml").write_text(SETTINGS)
    (folder / "refunds.md").write_text((EXAMPLES / "refunds.md").read_text())
    with serving("hub.yaml", "--port", "0", cwd=folder) as served:
        address = served.wait_for(" is ready at ").rpartition(" ")[2]
        program = [sys.executable, str(EXAMPLES / "mailer.py")]
        with subprocess.Popen(program, env=environment(III_URL=address), stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "mailer is ready\n"
            yield served, folder
            worker.kill()


def client_of(hub: tuple[Serving, Path]) -> Client:
    """A client of the hub."""
    words = hub[0].wait_for(" is ready at ").replace(",", "").split()
    return Client(next(word for word in words if word.startswith("http")))


def transcript() -> list[tuple[str, str]]:
    """Every command of the page, with the output it shows."""
    following: list[Block] = BLOCKS[1:]
    pairs = zip(BLOCKS, following, strict=False)
    return [(block.text.strip(), after.text) for block, after in pairs if block.language == "sh"]


def shown_after(text: str) -> str:
    """The first plain block after a text."""
    place = TEXT[: TEXT.index(text)].count("\n")
    return next(block.text for block in BLOCKS if block.line > place and block.language == "")


def test_the_commands_print_what_the_page_shows(hub: tuple[Serving, Path]) -> None:
    said = transcript()
    assert len(said) == 5
    for line, shown in said:
        program, *arguments = shlex.split(line)
        run = subprocess.run(
            [str(BIN / program), *arguments],
            cwd=hub[1],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert agrees(shown, run.stdout), (line, run.stdout)


def test_agents_read_what_the_page_shows(hub: tuple[Serving, Path]) -> None:
    client = client_of(hub)
    uris = ["iii://resend/email", "iii://fn/resend/health"]
    assert f'{{"uris": ["{uris[0]}", "{uris[1]}"]}}' in TEXT
    fetched = client.use("skill__fetch", uris=uris)["content"][0]["text"]
    assert fetched == shown_after('{"uris"').rstrip("\n")
    index = client.ask("resources/read", {"uri": "iii://skills"})["contents"][0]["text"]
    assert agrees(shown_after("The index has a line"), index)
    error = client.error("resources/read", {"uri": "iii://resend/emial"})["message"]
    assert shown_after("answered with the nearest").strip() in error
    written = client.ask("prompts/get", {"name": "send-email", "arguments": {"to": "Ada"}})
    assert written["messages"][0]["content"]["text"] == "Write an email to Ada about anything."


def test_the_page_has_every_function_and_trigger(hub: tuple[Serving, Path]) -> None:
    tools = {one["name"] for one in client_of(hub).ask("tools/list")["tools"]}
    named = set(re.findall(r"`((?:skills?|prompts)::[\w-]+)`", TEXT))
    kinds = {kind.id for kind in TRIGGER_TYPES.values()}
    assert len(named - kinds) == 13
    assert kinds <= named
    assert {name.replace("::", "__") for name in named if not is_internal(name)} <= tools


@pytest.mark.parametrize(
    "number", [uris.MAX_BODY_BYTES, uris.MAX_ID_CHARACTERS, uris.MAX_SEGMENT_CHARACTERS, content.MAX_SUMMARY_CHARACTERS]
)
def test_the_page_has_the_limits(number: int) -> None:
    assert re.search(rf"\b{number}\b", TEXT)
