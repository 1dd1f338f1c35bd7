"""The error about an unusable server says in one line what failed, where, and what to do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import answering, response
from tests.upstreams.pools import listening, official_app, pooled
from waypost.config.models import McpConnection
from waypost.errors import RemoteError
from waypost.outbound.http1 import HttpError, Reason, Response
from waypost.upstreams.http import UpstreamHttpTransport
from waypost.upstreams.transport import UpstreamUnavailable

HTML = b"<html>Welcome</html>"


async def error_about(connection: McpConnection, within: float = 60.0) -> str:
    """The error about a failing server, the same for operators and callers."""
    async with pooled(connection, start=within) as pool:
        with pytest.raises((UpstreamUnavailable, RemoteError)) as caught:
            await pool.list_tools("up")
        said = str(caught.value)
        assert pool.status("up").reason == said
    assert "\n" not in said
    assert said.count('"up"') == 1
    assert said.endswith(".")
    return said


@pytest.mark.parametrize(
    ("answer", "what", "to_do"),
    [
        (response(b"", status="401 Unauthorized"), "answered 401: Unauthorized", "a credential that it accepts"),
        (response(b'{"error": "Old token."}', status="401 No"), "answered 401: Old token; ", "headers"),
        (response(HTML, status="403 Forbidden", kind="text/html"), "answered 403: Forbidden", "with sufficient rights"),
        (response(HTML, status="404 Not Found", kind="text/html"), "answered 404: Not Found", "a path such as /mcp"),
        (response(b"", status="405 Method Not Allowed"), "answered 405: Method Not Allowed", "accept messages by POST"),
        (response(b"{}", status="500 Internal Server Error"), "answered 500: Internal Server Error", "its log"),
        (response(HTML, status="502 Bad Gateway", kind="text/html"), "answered 502: Bad Gateway", "its log"),
        (response(b"", status="429 Too Many Requests"), "answered 429: Too Many Requests", "later"),
        (
            response(b"", status="301 Moved"),
            "answered 301, a redirect that is not followed",
            "set its url to where it leads",
        ),
        (response(HTML, kind="text/html"), "answered 200 with text/html, which is not MCP", "correct its url"),
        (response(b'{"hello": 1}'), "without an answer", "its url is that of an MCP server"),
        (response(b"nonsense"), "without an answer", "its url is that of an MCP server"),
        (b"", "closed without a response", "begin with https:"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "its response is not HTTP", "correct the port in its url"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_an_unusable_answer_is_explained(answer: bytes, what: str, to_do: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async def write(_body: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await writer.drain()

        async with answering(write) as url:
            said = await error_about(McpConnection(url=url))
            assert what in said
            assert to_do in said
            assert url not in said

    scenario()


@pytest.mark.parametrize(
    ("url", "what", "to_do"),
    [
        ("http://127.0.0.1:{port}/mcp", "the connection was refused", "start its server, or correct its url"),
        ("http://no-such-host.invalid/mcp", "its name is not known", "correct the host in its url"),
        ("localhost:3000/mcp", "the address is not valid", "has to look like https://host/mcp"),
        ("https://127.0.0.1:{web}/mcp", "it does not speak TLS", "its url has to begin with http:"),
    ],
)
def test_a_wrong_address_is_explained(url: str, what: str, to_do: str) -> None:
    @asynchronous
    async def scenario() -> None:
        async with listening(official_app()) as web:
            place = url.format(port=free_port(), web=web.split(":")[2].split("/")[0])
            said = await error_about(McpConnection(url=place))
        assert said.startswith('The connection "up" cannot be reached: ')
        assert what in said
        assert to_do in said

    scenario()


def test_an_untrusted_certificate_is_explained() -> None:
    untrusted = HttpError(Reason.UNTRUSTED, "its certificate is not trusted: self-signed certificate", sent=False)
    said = str(UpstreamHttpTransport("up", McpConnection(url="https://x/mcp")).to_error(untrusted))
    assert said.endswith("self-signed certificate; let SSL_CERT_FILE name a file with the authority that signed it.")


@pytest.mark.parametrize(
    ("command", "args", "what", "to_do"),
    [
        ("no-such-program", [], "cannot start no-such-program: there is no such program", "correct its command"),
        (__file__, [], "it may not be executed", "its permissions"),
        (sys.executable, ["-c", "import nowhere_at_all"], "exit code 1: ModuleNotFoundError: No module", "its command"),
        ("true", [], "ended with the exit code 0", "check whether its command, with its args"),
        ("echo", ["Hello."], "exit code 0: Hello", "check whether its command, with its args"),
        ("sh", ["-c", "kill -9 $$"], "was killed by the signal 9", "check whether its command, with its args"),
    ],
)
def test_a_wrong_program_is_explained(command: str, args: list[str], what: str, to_do: str) -> None:
    @asynchronous
    async def scenario() -> None:
        said = await error_about(McpConnection(command=command, args=args))
        assert what in said
        assert to_do in said

    scenario()


@asynchronous
async def test_a_program_that_does_not_speak_mcp_is_explained(tmp_path: Path) -> None:
    for command in ("cat > /dev/null", "while read line; do echo '{\"a\": 1}'; done", "yes"):
        said = await error_about(McpConnection(command="sh", args=["-c", command]), within=1)
        assert "did not answer within 1 s of its start" in said
        assert "check whether its command is that of an MCP server" in said
    said = await error_about(McpConnection(command="cat", working_directory=str(tmp_path / "gone")))
    assert said == f'The connection "up" cannot start cat: its workingDirectory {tmp_path / "gone"} does not exist.'


@asynchronous
async def test_secrets_are_redacted_in_the_stderr_of_a_program() -> None:
    crash = ["-c", "import os, sys; print('No entry with', os.environ['PASS'], file=sys.stderr); sys.exit(2)"]
    said = await error_about(McpConnection(command=sys.executable, args=crash, env={"PASS": "hush-hush"}))
    assert "exit code 2: No entry with [REDACTED]" in said


def refused(connection: McpConnection, status: int, reason: str) -> str:
    """The error about a refusing response."""
    response = Response()
    response.status, response.reason = status, reason
    return str(UpstreamHttpTransport("up", connection).to_refusal(response))


def test_the_error_for_user_credentials_names_the_login_command() -> None:
    own = McpConnection(url="http://x/mcp", credentials="user")
    assert "`waypost upstreams login up` stores" in refused(own, 401, "Unauthorized")


def test_a_long_message_is_cut() -> None:
    said = refused(McpConnection(url="http://x/mcp"), 500, "Oh.\n" * 200)
    assert said.startswith('The server of the connection "up" answered 500: Oh. Oh. ')
    assert len(said) < 300
