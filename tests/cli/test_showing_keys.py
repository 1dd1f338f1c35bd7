"""Keys that `list`, `search`, `describe`, `call` and `read` send to a hub at a URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.operated import AGENT, Captured, complaint, printed
from tests.cli.shell import serving
from waypost.cli import main
from waypost.cli.client import is_same_hub

SERVER = f"""\
from waypost import Context, Hub
from waypost.identity import Authentication, Key, digest

hub = Hub("desk", version="1", auth=Authentication([Key("agent", digest("{AGENT}"))], anonymous=False))

@hub.tool
async def who(ctx: Context) -> str:
    return ctx.principal.id
"""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a hub that requires a key, and its data directory."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "server.py").write_text(SERVER)
    with serving("server.py:hub", "--port", "0", "--data", "kept", cwd=folder) as hub:
        yield hub.url, folder / "kept"


def test_the_key_comes_from_the_option_or_the_environment(
    closed: tuple[str, Path], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = closed
    assert main(["call", url, "who", "--key", AGENT]) == 0
    assert printed(capsys) == "agent\n"
    monkeypatch.setenv("WAYPOST_KEY", AGENT)
    assert main(["call", url.removesuffix("/mcp"), "who"]) == 0
    assert printed(capsys) == "agent\n"
    assert main(["list", url, "--key", "wp_another"]) == 1
    assert complaint(capsys) == f"waypost: {url} answered 401: Invalid API key"


def test_the_key_of_a_local_hub_is_found_in_its_data_directory(closed: tuple[str, Path], capsys: Captured) -> None:
    url, data = closed
    assert main(["call", url.replace("127.0.0.1", "localhost"), "who", "--data", str(data)]) == 0
    assert printed(capsys) == "hub\n"


def test_the_key_in_a_data_directory_is_not_sent_to_another_hub(closed: tuple[str, Path], capsys: Captured) -> None:
    url, data = closed
    assert main(["list", "http://127.0.0.1:9", "--data", str(data)]) == 2
    assert complaint(capsys) == (
        f"waypost: The hub of {data} is at {url.removesuffix('/mcp')}, not at http://127.0.0.1:9."
    )


@pytest.mark.parametrize("words", [["list"], ["search", "x"], ["describe", "x"], ["call", "who"], ["read", "x://y"]])
def test_without_a_key_the_error_of_the_hub_is_printed(
    words: list[str], closed: tuple[str, Path], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAYPOST_KEY", raising=False)
    url, _ = closed
    assert main([words[0], url, *words[1:]]) == 1
    assert complaint(capsys) == (
        f"waypost: {url} answered 401: Missing Authorization header; pass a key with --key or WAYPOST_KEY."
    )


@pytest.mark.parametrize("option", [["--key", AGENT], ["--data", "kept"]])
def test_a_local_target_accepts_no_key(option: list[str], capsys: Captured) -> None:
    assert main(["list", "server.py:hub", *option]) == 2
    assert "--key and --data are for a hub at a URL, and server.py:hub is not a URL" in complaint(capsys)


@pytest.mark.parametrize("target", ["ftp://x", "ws://127.0.0.1:1", "://"])
def test_an_invalid_url_is_a_one_line_error(target: str, capsys: Captured) -> None:
    assert main(["list", target]) == 2
    assert complaint(capsys) == f"waypost: {target} is not a target; use a URL that begins with http:// or https://."


def test_reading_from_a_hub_without_resources_is_an_error(closed: tuple[str, Path], capsys: Captured) -> None:
    url, _ = closed
    assert main(["read", url, "docs://readme", "--key", AGENT]) == 1
    assert complaint(capsys) == f"waypost: {url} has no resources."


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://127.0.0.1:8420", "http://localhost:8420/mcp/", True),
        ("http://0.0.0.0:8420", "http://127.0.0.1:8420", True),
        ("https://hub.example.com/team", "https://hub.example.com:443/team/mcp", True),
        ("http://127.0.0.1:8420", "https://127.0.0.1:8420", False),
        ("http://127.0.0.1:8420", "http://127.0.0.1:8421", False),
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420/team", False),
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420@evil.example/", False),
    ],
)
def test_addresses_of_the_same_hub_are_recognised(one: str, other: str, same: bool) -> None:
    assert is_same_hub(one, other) is same
