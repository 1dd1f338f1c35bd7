"""How the content registry says no: the errors that it raises, and texts as they are shown in them."""

from __future__ import annotations

from typing import Final

from waypost.errors import InvocationFailed

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


class NotThere(InvocationFailed):
    """There is no such document."""


def refused(text: str) -> InvocationFailed:
    """A call that is wrong, as its caller is told."""
    return InvocationFailed(text)


def quoted(text: str) -> str:
    """A text in double quotes, whatever is in it."""
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in text) + '"'


def size(text: str) -> int:
    """The bytes of a text."""
    return len(text.encode(errors="surrogatepass"))
