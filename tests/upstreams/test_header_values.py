"""Text in a header, whatever is in it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from waypost.protocol import modern
from waypost.upstreams.transport import to_header_value


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
def test_a_plain_name_is_sent_as_it_is(text: str) -> None:
    if not text.startswith("=?base64?"):
        assert to_header_value(text) == text
