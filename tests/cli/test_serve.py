"""`waypost serve`: a real process over HTTP and on standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import COMMAND, PATIENCE, environment, serving, waypost
from waypost import RemoteError
from waypost.cli import main
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpTransport
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]


def ask(url: str, version: str = V2026_07_28) -> str:
    """The answer of `add` to a real client."""

    async def scenario() -> str:
        client = Client(HttpTransport(url), version=version, patience=PATIENCE)
        await client.open()
        try:
            return str((await client.call_tool("add", {"a": 1, "b": 2})).text)
        finally:
            await client.close()

    return asyncio.run(scenario())


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The single line on stderr; stdout must be empty."""
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return str(line)


# Over HTTP


@pytest.mark.parametrize("target", ["server.py:hub", "waypost.yaml"])
def test_a_hub_is_served_until_sigterm(target: str, project: Path) -> None:
    with serving(target, "--port", "0", cwd=project) as hub:
        url = hub.url
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/mcp")
        assert [ask(url, version) for version in ERAS] == ["3.0", "3.0"]
        hub.signal(signal.SIGTERM)
        assert hub.wait() == 0
        # On a busy machine the watchdog may add a line.
        [ready, sign_in] = [line for line in hub.lines if "event loop" not in line]
        assert ready == f"desk is ready at {url}"
        assert sign_in.startswith(f"sign in to the console once at {url.removesuffix('mcp')}console/sign-in?token=")


def test_an_interrupted_hub_ends_without_further_output(project: Path) -> None:
    with serving("server.py:hub", "--port", "0", cwd=project) as hub:
        ready = f"desk is ready at {hub.url}"
        hub.signal(signal.SIGINT)
        assert hub.wait() in (0, 130)
        assert [line for line in hub.lines if not line.startswith("sign in to the console")] == [ready]


def test_the_file_in_the_current_directory_is_served_by_default(project: Path) -> None:
    with serving(cwd=project) as hub:
        assert ask(hub.url) == "3.0"


def test_open_streams_do_not_delay_the_exit(project: Path) -> None:
    async def scenario(url: str, end: Any) -> int:
        client = Client(HttpTransport(url), patience=PATIENCE)
        await client.open()
        code = -1
        with suppress(RemoteError):  # the server has ended when the stream is closed
            async with client.listen(toolsListChanged=True):
                code = await asyncio.to_thread(end)
        await client.close()
        return code

    with serving("server.py:hub", "--port", "0", cwd=project) as hub:
        url = hub.url

        def end() -> int:
            hub.signal(signal.SIGTERM)
            return hub.process.wait(60)

        assert asyncio.run(scenario(url, end)) == 0


def test_a_hub_writes_its_address_into_a_private_hub_file(project: Path) -> None:
    with serving("server.py:hub", "--port", "0", cwd=project) as hub:
        url = hub.url
        note = project / ".waypost" / "hub.json"
        said = json.loads(note.read_text())
        assert said["url"] == url.removesuffix("/mcp")
        assert said["pid"] == hub.process.pid
        assert stat.S_IMODE(note.stat().st_mode) == 0o600


def test_an_old_world_readable_hub_file_is_replaced(project: Path) -> None:
    note = project / "data" / "hub.json"
    note.parent.mkdir()
    note.write_text("{}")
    note.chmod(0o644)

    with serving("server.py:hub", "--port", "0", "--data", "data", cwd=project) as hub:
        url = hub.url
        assert json.loads(note.read_text())["url"] == url.removesuffix("/mcp")
        assert stat.S_IMODE(note.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "env", "place"),
    [
        (["--data", "chosen"], {"WAYPOST_DATA": "ignored"}, "elsewhere/chosen"),
        ([], {"WAYPOST_DATA": "from-environment"}, "elsewhere/from-environment"),
        ([], {}, "project/.waypost"),
    ],
    ids=["the option", "the environment", "beside the file"],
)
def test_the_data_directory_is(options: list[str], env: dict[str, str], place: str, project: Path) -> None:
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()

    with serving(project / "server.py:hub", "--port", "0", *options, cwd=elsewhere, **env) as hub:
        assert hub.url
        expected = project / place.removeprefix("project/") if place.startswith("project/") else project / place
        assert (expected / "hub.json").exists()


def test_a_port_in_use_is_a_one_line_error_with_status_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["serve", "server.py:hub", "--port", str(port)]) == 1

    assert f"Cannot listen on 127.0.0.1:{port}: " in only_line(capsys)
    assert not (project / ".waypost" / "hub.json").exists()


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_an_impossible_port_is_a_one_line_error(port: str, project: Path) -> None:
    done = waypost("serve", "server.py:hub", f"--port={port}", cwd=project)

    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_data_directory_that_cannot_be_created_is_a_one_line_error(project: Path) -> None:
    (project / "taken").write_text("a file")

    done = waypost("serve", "server.py:hub", "--port", "0", "--data", "taken", cwd=project)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory that even root cannot write to")
def test_an_unwritable_data_directory_is_a_one_line_error(project: Path) -> None:
    data = f"/proc/{os.getpid()}/fdinfo"
    done = waypost("serve", "server.py:hub", "--port", "0", "--data", data, cwd=project)
    assert done.returncode == 1
    assert re.fullmatch(rf"waypost: The data directory {data} cannot be written to: [^\n]+\.\n", done.stderr)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "hub.example.com"])
@pytest.mark.parametrize("target", ["server.py:hub", "waypost.yaml"])
def test_a_public_address_without_authentication_is_refused(
    target: str, host: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", target, "--host", host, "--port", "0"]) == 1

    line = only_line(capsys)
    assert host in line
    assert "allowAnonymousRemote" in line


def test_a_public_address_is_served_if_the_configuration_allows_it(project: Path) -> None:
    config = (project / "waypost.yaml").read_text()
    allowed = config.replace("port: 0", 'port: 0, host: "0.0.0.0", allowAnonymousRemote: true')
    (project / "waypost.yaml").write_text(allowed)

    with serving("waypost.yaml", cwd=project) as hub:
        assert hub.url.startswith("http://0.0.0.0:")
        assert ask(hub.url.replace("0.0.0.0", "127.0.0.1")) == "3.0"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_loopback_addresses_are_served(host: str, project: Path) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("there is no IPv6 here")
    with serving("server.py:hub", "--host", host, "--port", "0", cwd=project) as hub:
        assert ask(hub.url) == "3.0"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_address_of_the_configuration_is_overridden_by_options(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = (project / "waypost.yaml").read_text()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (project / "waypost.yaml").write_text(config.replace("port: 0", f"port: {port}"))

        assert main(["serve", "waypost.yaml"]) == 1
        assert f"127.0.0.1:{port}" in only_line(capsys)
        with serving("waypost.yaml", "--port", "0", cwd=project) as hub:
            assert ask(hub.url) == "3.0"


def test_a_configuration_with_errors_is_refused_line_by_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "waypost.yaml").write_text("server: {prot: 1}\ntoolkits: [./gone.py]\n")

    assert main(["serve"]) == 1

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("waypost.yaml:1: ")
    assert "`port`" in first
    assert second.startswith("waypost.yaml:2: ")


def test_a_configuration_with_warnings_is_served(project: Path) -> None:
    with (project / "waypost.yaml").open("a") as file:
        file.write("include: [team/*.yaml]\n")

    with serving(cwd=project) as hub:
        assert ask(hub.url) == "3.0"


def test_a_url_cannot_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "http://127.0.0.1:8420/mcp"]) == 2
    assert "is the URL of a server" in only_line(capsys)


@pytest.mark.parametrize("target", ["x.txt", "ftp://x"])
def test_an_invalid_target_is_an_error_that_names_valid_ones(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", target]) == 2
    assert (
        only_line(capsys) == f"waypost: {target} is not a target; use waypost.yaml, file.py:hub or package.module:hub."
    )


@pytest.mark.parametrize("port", ["99999", "-1", "http", "", "8420.0", "٣"])
def test_an_invalid_port_is_wrong_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", f"--port={port}"])

    assert ended.value.code == 2
    assert f"{port!r} is not a port; use 0 to 65535; see" in only_line(capsys)


# On standard streams


class StdioHub:
    """A hub on the other end of two pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._out, self._in = process.stdout, process.stdin

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and read the next line."""
        self.send(message)
        answer: dict[str, Any] = json.loads(self._out.readline())
        assert answer["id"] == message["id"]
        return answer

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._in.flush()

    def leave(self) -> bytes:
        """Close stdin and return the rest of stdout."""
        self._in.close()
        rest = self._out.read()
        self.process.wait(PATIENCE)
        return rest


@contextmanager
def on_stdio(target: str, cwd: Path) -> Iterator[StdioHub]:
    process = subprocess.Popen(
        [COMMAND, "serve", target, "--stdio"],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    hub = StdioHub(process)
    try:
        yield hub
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize("target", ["server.py:hub", "waypost.yaml"])
def test_a_session_on_standard_streams(target: str, project: Path) -> None:
    with on_stdio(target, project) as hub:
        welcome = hub.ask(
            {
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": LATEST_LEGACY,
                    "capabilities": {},
                    "clientInfo": {"name": "test", "version": "1"},
                },
            }
        )
        assert welcome["result"]["serverInfo"]["name"] == "desk"
        hub.send({"method": "notifications/initialized"})
        called = hub.ask({"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}})
        assert called["result"]["structuredContent"] == {"result": 3.0}
        assert hub.leave() == b""
        assert hub.process.returncode == 0


def test_a_stateless_request_on_standard_streams(project: Path) -> None:
    with on_stdio("server.py:hub", project) as hub:
        meta = {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}}
        arguments = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
        assert (
            hub.ask({"id": "x", "method": "tools/call", "params": arguments})["result"]["content"][0]["text"] == "3.0"
        )
        assert hub.leave() == b""
        assert hub.process.returncode == 0


def test_only_protocol_messages_go_to_stdout(project: Path) -> None:
    (project / "noisy.py").write_text(
        "import os\nfrom waypost import Hub\n"
        "print('importing')\n"
        "hub = Hub('noisy', version='1')\n"
        "@hub.tool\n"
        "async def shout() -> str:\n"
        "    print('calling', flush=True)\n"
        "    os.write(1, b'raw')\n"
        "    return 'done'\n"
    )
    with on_stdio("noisy.py:hub", project) as hub:
        meta = {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: {}}
        params = {"name": "shout", "arguments": {}, "_meta": meta}
        assert hub.ask({"id": 1, "method": "tools/call", "params": params})["result"]["content"][0]["text"] == "done"
        assert hub.leave() == b""
        assert hub.process.stderr is not None
        said = hub.process.stderr.read()
        assert b"importing" in said
        assert b"calling" in said
        assert b"raw" in said


def test_a_hub_on_standard_streams_creates_no_data_directory(project: Path) -> None:
    with on_stdio("waypost.yaml", project) as hub:
        assert hub.ask({"id": 1, "method": "ping"})["result"] == {}
        hub.leave()
    assert not (project / ".waypost").exists()
    assert not os.path.exists(project / "hub.json")
