"""A served hub whose files are saved badly: emptied, cut off, removed, replaced, or written in pieces."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.shell import Serving, serving
from tests.configured.conftest import Folder
from tests.protocol.conftest import Json, initialization, stateless
from tests.transports.http.conftest import BOTH, routing
from waypost.identity import digest, new_key

KEY = new_key()
SERVER = 'version: "1"\nserver: {port: 0, surface: full}\n'
TOOLKITS = "toolkits: [./tools.py]\n"
AUTH = f'auth:\n  anonymous: false\n  keys: [{{id: ci, hash: "{digest(KEY)}"}}]\n'
POLICIES = "policies:\n  - {name: no-shell, type: mcp_restriction, config: {tool_pattern: shell}}\n"
WHOLE = SERVER + TOOLKITS + AUTH + POLICIES
KIT = """\
from waypost import tool


@tool(name="speak")
def speak() -> str:
    return "spoken"


@tool(name="shell")
def shell() -> str:
    return "ran"
"""
REFUSED = "the configuration was not reloaded: "
RELOADED = "the configuration was reloaded"
MAX_IDLE_S = 2.0
"""The hub closes connections that are idle for five seconds, maybe while the next request is sent."""


class Client:
    """A client of a served hub; requests carry a key unless they say otherwise."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        self._used_at = time.monotonic()

    def post(self, message: Json, key: str | None, headers: dict[str, str | None] | None = None) -> tuple[int, Any]:
        given = {"accept": BOTH, "content-type": "application/json", **(headers or {})}
        given["authorization"] = None if key is None else f"Bearer {key}"
        sent = {name: value for name, value in given.items() if value is not None}
        if time.monotonic() - self._used_at > MAX_IDLE_S:
            self._connection.close()
        self._connection.request("POST", "/mcp", json.dumps(message), sent)
        response = self._connection.getresponse()
        body = response.read()
        self._used_at = time.monotonic()
        if response.getheader("content-type") == "text/event-stream":
            # The answer of a call that took long, as after a kill on PostgreSQL: the dead process has leased all slots.
            body = body.rpartition(b"data: ")[2]
        return response.status, json.loads(body)

    def status(self, key: str | None = None) -> int:
        """The status that a client with this key, or without one, gets."""
        return self.post(initialization(), key)[0]

    def ask(self, method: str, params: Json | None = None, key: str | None = KEY) -> Json:
        message = stateless(1, method, params)
        status, answer = self.post(message, key, routing(message))
        assert status == 200, answer
        assert isinstance(answer, dict)
        return answer

    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.ask("tools/list")["result"]["tools"]}

    def is_denied_shell(self, key: str | None = KEY) -> bool:
        answer = self.ask("tools/call", {"name": "shell", "arguments": {}}, key)
        return "error" in answer and "blocked" in answer["error"]["message"]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def served(folder: Folder, **files: str) -> Iterator[tuple[Serving, Client]]:
    """`waypost serve` of the configuration in a folder, and a client of it."""
    folder.write("tools.py", KIT)
    for name, text in files.items():
        folder.write(f"{name}.yaml", text)
    with serving("waypost.yaml", cwd=folder.path) as hub:
        client = Client(hub.url)
        try:
            yield hub, client
        finally:
            client.close()


def assert_unchanged(client: Client) -> None:
    """The hub still asks for a key, offers both tools and denies one of them."""
    assert client.status() == 401
    assert client.tools() == {"speak", "shell"}
    assert client.is_denied_shell()


def test_an_emptied_file_is_refused_and_loaded_when_it_is_complete_again(folder: Folder) -> None:
    with served(folder, waypost=WHOLE) as (hub, client):
        assert_unchanged(client)
        folder.config.write_bytes(b"")
        assert "waypost.yaml:1: the file is empty and was not before" in hub.wait_for(REFUSED)
        assert_unchanged(client)

        hub.signal(signal.SIGHUP)
        hub.wait_for(REFUSED, times=2)
        assert_unchanged(client)

        folder.config.write_text(WHOLE + "prompts: {hello: {template: Hello.}}\n")
        hub.wait_for(RELOADED)
        assert_unchanged(client)


@pytest.mark.parametrize("pattern", ["rules.yaml", "rule*.yaml"])
def test_an_emptied_include_is_refused(pattern: str, folder: Folder) -> None:
    main = f"{SERVER}include: ['{pattern}']\n{TOOLKITS}"
    with served(folder, waypost=main, rules=AUTH + POLICIES) as (hub, client):
        assert_unchanged(client)
        (folder.path / "rules.yaml").write_bytes(b"")
        assert "rules.yaml:1: the file is empty and was not before" in hub.wait_for(REFUSED)
        assert_unchanged(client)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (SERVER + TOOLKITS, "auth: the section is gone"),
        (SERVER + TOOLKITS + AUTH, "policies: the section is gone, and with it `no-shell`"),
    ],
    ids=["before auth", "before policies"],
)
def test_a_truncated_file_is_refused(kept: str, said: str, folder: Folder) -> None:
    with served(folder, waypost=WHOLE) as (hub, client):
        os.truncate(folder.config, len(kept))
        assert said in hub.wait_for(REFUSED)
        assert_unchanged(client)


def test_an_emptied_toolkit_is_refused(folder: Folder) -> None:
    with served(folder, waypost=WHOLE) as (hub, client):
        folder.tools.write_bytes(b"")
        assert "tools.py:1: the file is empty and was not before" in hub.wait_for(REFUSED)
        assert_unchanged(client)


def test_an_explicit_removal_of_protection_is_loaded(folder: Folder) -> None:
    with served(folder, waypost=WHOLE) as (hub, client):
        folder.write("waypost.yaml", SERVER + TOOLKITS + "auth: {anonymous: true}\npolicies: []\n")
        hub.wait_for(RELOADED)
        assert client.status() == 200
        assert not client.is_denied_shell(key=None)


def test_a_replaced_link_to_a_complete_file_is_loaded(folder: Folder) -> None:
    folder.write("old.yaml", WHOLE)
    folder.write("new.yaml", WHOLE + "prompts: {hello: {template: Hello.}}\n")
    folder.config.unlink()
    folder.config.symlink_to("old.yaml")
    with served(folder) as (hub, client):
        link = folder.path / "link"
        link.symlink_to("new.yaml")
        link.replace(folder.config)
        hub.wait_for(RELOADED)
        assert_unchanged(client)


CHANCE = random.Random(4)
SIZES = (4, 6, 9)
"""How many tools the versions of a file offer that is saved again and again."""


def version(size: int) -> str:
    """A file that stays valid YAML when it is cut at the end of almost any line."""
    lines = ['version: "1"', "server:", "  port: 0", "  surface: full", "prompts:"]
    for number in range(size):
        lines += [f"  prompt-{size}-{number}:", f"    title: {'x' * 40}", "    template: Hello."]
    lines += ["toolkits:", *(f"  - ./kit-{size}-{number}.py" for number in range(size))]
    lines += ["auth:", "  keys:", "    - id: ci", f'      hash: "{digest(KEY)}"', "  anonymous: false", "policies:"]
    lines += ["  - name: no-shell", "    type: mcp_restriction", "    config:", "      tool_pattern: shell"]
    return "\n".join(lines) + "\n"


def catalog(size: int) -> frozenset[str]:
    return frozenset(f"tool-{size}-{number}" for number in range(size))


class Poller(threading.Thread):
    """Repeatedly lists the tools with a key, and sends a request without one."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.catalogs: set[frozenset[str]] = set()
        self.statuses: set[int] = set()
        self._url = url
        self._finished = threading.Event()

    def run(self) -> None:
        client = Client(self._url)
        while not self._finished.wait(0.002):
            self.catalogs.add(frozenset(client.tools()))
            self.statuses.add(client.status())
        client.close()

    def finish(self) -> None:
        self._finished.set()
        self.join(60)


def save(path: Path, text: str, longest_pause: float) -> None:
    """Save as many editors do: empty the file, then write it in pieces, cut at the ends of lines."""
    lines = text.splitlines(keepends=True)
    cuts = sorted(CHANCE.sample(range(1, len(lines)), 2))
    with open(path, "w") as file:
        for start, end in pairwise([0, *cuts, len(lines)]):
            time.sleep(CHANCE.uniform(0, longest_pause))
            file.write("".join(lines[start:end]))
            file.flush()


def test_a_thousand_torn_saves_under_load_never_show_part_of_a_file(folder: Folder) -> None:
    for size in SIZES:
        for number in range(size):
            code = f'@tool(name="tool-{size}-{number}")\ndef act() -> str:\n    return ""\n'
            folder.write(f"kit-{size}-{number}.py", f"from waypost import tool\n\n\n{code}")
    with served(folder, waypost=version(SIZES[0])) as (hub, client):
        poller = Poller(hub.url)
        poller.start()
        for number in range(1_000):
            size = SIZES[number % len(SIZES)]
            # Most saves are quick; a few pause for longer than a burst of changes.
            save(folder.config, version(size), longest_pause=0.2 if number % 25 == 0 else 0.002)
            if number % 100 == 99:
                deadline = time.monotonic() + 60
                while client.tools() != catalog(size):
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
        poller.finish()

    assert poller.statuses == {401}
    assert poller.catalogs == {catalog(size) for size in SIZES}
