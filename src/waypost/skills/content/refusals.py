"""How the content registry says no: the errors that it raises, and texts as they are shown in them."""

from __future__ import annotations

from typing import Final

from waypost.errors import InvocationFailed, shorten

_MAX_QUOTED_CHARACTERS: Final = 1024
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


class NotThere(InvocationFailed):
    """There is no such document."""


def refused(text: str) -> InvocationFailed:
    """A call that is wrong, as its caller is told."""
    return InvocationFailed(text)


def quoted(text: str) -> str:
    """Return a text in double quotes and escaped; one that is longer than any id is cut."""
    shown = shorten(text, _MAX_QUOTED_CHARACTERS)
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in shown) + '"'


def size(text: str) -> int:
    """The bytes of a text."""
    return len(text.encode(errors="surrogatepass"))
