"""`waypost serve --reload`: changed code is served at the same address, and broken code is not."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.cli.shell import PATIENCE, serving, waypost
from waypost.cli import main

SERVER = '''\
from waypost import Hub

hub = Hub("desk", version="1")


@hub.tool
async def version() -> str:
    """The version of the code."""
    return "first"
'''


def test_a_change_is_served_at_the_same_address_and_broken_code_is_not(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    with serving("server.py:hub", "--port", "0", "--reload", "--access-log", cwd=tmp_path) as hub:
        url = hub.url
        assert waypost("call", url, "version", cwd=tmp_path).stdout == "first\n"

        file.write_text(SERVER.replace("first", "other"))
        hub.wait_for("server.py changed; serving it again")
        assert hub.wait_for(" is ready at ", times=2).endswith(url)
        assert waypost("call", url, "version", cwd=tmp_path).stdout == "other\n"

        file.write_text(SERVER + "broken = (\n")
        hub.wait_for("server.py changed; it cannot be loaded, and the hub before it stays")
        assert "SyntaxError" in hub.wait_for("cannot be imported")
        assert waypost("call", url, "version", cwd=tmp_path).stdout == "other\n"
        hub.wait_for("POST /mcp tools/call 200", times=3)
        children = psutil.Process(hub.process.pid).children()

        hub.signal(signal.SIGTERM)
        assert hub.wait() == 0
    assert not any(child.is_running() for child in children)


def test_the_hub_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    with serving("server.py:hub", "--port", "0", "--reload", cwd=tmp_path) as hub:
        assert hub.url
        [child] = psutil.Process(hub.process.pid).children()

        hub.signal(signal.SIGKILL)

        child.wait(PATIENCE)


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["server.py:hub", "--stdio", "--reload"], 2, "--reload is for HTTP"),
        (["nowhere.py:hub", "--reload"], 1, "The file nowhere.py does not exist"),
    ],
)
def test_a_target_that_cannot_be_reloaded_is_an_error(
    words: list[str], status: int, sentence: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == status
    assert sentence in capsys.readouterr().err


def test_a_configuration_is_served_with_the_option(project: Path) -> None:
    with serving("waypost.yaml", "--reload", "--access-log", cwd=project) as hub:
        assert hub.wait_for("also without --reload")
        assert waypost("call", hub.url, "add", "a=1", "b=2", cwd=project).stdout == "3.0\n"
        hub.wait_for("POST /mcp tools/call 200")
