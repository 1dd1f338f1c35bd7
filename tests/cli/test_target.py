"""Targets of commands: configuration files, hubs in Python code, and servers at a URL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cli.shell import waypost
from waypost import Hub, WaypostError
from waypost.cli import main
from waypost.cli.target import is_config, is_url, load_hub, open_target


@pytest.mark.parametrize(
    ("target", "url", "config"),
    [
        ("http://127.0.0.1:8420/mcp", True, False),
        ("https://hub.example.com", True, False),
        ("waypost.yaml", False, True),
        ("./team/hub.yml", False, True),
        ("server.py:hub", False, False),
        ("package.module:hub", False, False),
    ],
)
def test_the_kind_of_a_target_is_recognised(target: str, url: bool, config: bool) -> None:
    assert (is_url(target), is_config(target)) == (url, config)


@pytest.mark.parametrize("target", ["server.py:hub", "./server.py:hub", "deskpackage.server:hub", "waypost.yaml"])
def test_a_hub_is_loaded_from(target: str, project: Path) -> None:
    hub = load_hub(target)

    assert isinstance(hub, Hub)
    assert (hub.info.name, hub.info.version) == ("desk", "1.2.3")


def test_an_absolute_path_is_a_target_too(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert load_hub(f"{project}/server.py:hub").info.name == "desk"
    assert load_hub(f"{project}/waypost.yaml").info.name == "desk"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://127.0.0.1:1/mcp", "is the URL of a server"),
        ("server.py", r"server.py is not a target; use server.py:hub\."),
        ("empty.py", "empty.py is not a target; use waypost.yaml, file.py:hub or"),
        ("broken.py", "broken.py cannot be imported: ZeroDivisionError"),
        ("127.0.0.1:8420", "127.0.0.1:8420 is not a target; use waypost.yaml, file.py:hub or"),
        ("deskpackage", "deskpackage is a directory; name a file in it, such as deskpackage/waypost.yaml"),
        ("nothing", "nothing is not a target; use "),
        ("missing.py:hub", "missing.py does not exist"),
        ("server.py:bus", r"has no 'bus'; use .*server.py:hub\."),
        ("server.py:hbu", r"has no 'hbu'; use .*server.py:hub\."),
        ("server.py:not_a_hub", "is of type int, not a Hub"),
        ("no.such.package:hub", "no.such.package cannot be imported: ModuleNotFoundError"),
        ("broken.py:hub", "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        ("wrong.py:hub", "wrong.py cannot be imported: SyntaxError"),
        ("missing.yaml", "missing.yaml:1: .*CFG001"),
    ],
)
def test_an_invalid_target_is_an_error(target: str, said: str, project: Path) -> None:
    (project / "broken.py").write_text("1 / 0\n")
    (project / "wrong.py").write_text("def :\n")
    (project / "empty.py").write_text("")

    with pytest.raises(WaypostError, match=said):
        load_hub(target)


@pytest.mark.parametrize("target", ["server.py:hub", "deskpackage.server:hub", "waypost.yaml"])
def test_a_local_target_is_connected_in_memory(target: str, project: Path) -> None:
    async def scenario() -> None:
        async with open_target(target) as (client, hub):
            assert hub is not None
            assert client.server_info.name == "desk"
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3.0}

    asyncio.run(scenario())


@pytest.mark.parametrize("ending", ["/mcp", "", "/", "/mcp/"])
def test_a_url_is_a_target_with_and_without_mcp_path(ending: str, url: str) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(60), open_target(url.removesuffix("/mcp") + ending) as (client, hub):
            assert hub is None
            assert client.server_info.name == "desk"

    asyncio.run(scenario())


def test_a_module_in_the_current_directory_needs_no_installation(project: Path) -> None:
    done = waypost("list", "deskpackage.server:hub", cwd=project)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("add")


@pytest.mark.parametrize(
    "words",
    [
        ["list", "http://"],
        ["list", "http://127.0.0.1:notaport"],
        ["skills-worker", "--url", "nonsense"],
        ["skills-worker", "--url", "ws://"],
    ],
    ids=" ".join,
)
def test_a_url_that_cannot_be_one_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "is not a URL" in capsys.readouterr().err
