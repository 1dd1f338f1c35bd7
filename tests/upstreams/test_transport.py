"""The transport of a connection, and the encoding of text in a header."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost.config.models import McpConnection
from waypost.protocol import modern
from waypost.upstreams.http import UpstreamHttpTransport
from waypost.upstreams.stdio import StdioTransport
from waypost.upstreams.transport import TRANSPORTS, to_header_value, transport_kind


@pytest.mark.parametrize(
    ("connection", "transport", "setting", "built"),
    [
        (McpConnection(url="http://x/mcp"), "http", "url", UpstreamHttpTransport),
        (McpConnection(command="cat"), "stdio", "command", StdioTransport),
        (McpConnection(url="http://x/mcp", command="cat"), "http", "url", UpstreamHttpTransport),
    ],
)
def test_the_transport_of_a_connection_is_that_of_its_url_or_else_of_its_command(
    connection: McpConnection, transport: str, setting: str, built: type
) -> None:
    kind = transport_kind(connection)

    assert connection.transport == transport
    assert kind is TRANSPORTS[transport]
    assert kind.setting == setting
    assert isinstance(kind.build("up", connection, lambda _: None), built)


def test_a_connection_without_url_and_command_has_no_transport() -> None:
    assert McpConnection().transport is None


def test_a_pool_that_is_not_used_loads_no_transport() -> None:
    code = "import sys, waypost.upstreams.pool; print({'httptools', 'waypost.upstreams.http'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@given(st.text())
@example("=?base64?eA==?=")
@example("=?base64?=")
@example(" padded ")
@example("tab\there")
@example("line\nbreak")
@example("")
@example("ümlaut")
def test_a_header_value_survives_the_trip(text: str) -> None:
    value = to_header_value(text)

    assert value.isascii()
    assert value.isprintable()
    assert modern.decode_header(value.encode(), b"mcp-name") == text


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_a_plain_name_is_sent_unchanged(text: str) -> None:
    if not text.startswith("=?base64?"):
        assert to_header_value(text) == text
