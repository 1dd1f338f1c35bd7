"""Text from bytes that came over HTTP."""

from __future__ import annotations

import re
from typing import Final

# Python knows codecs that take quadratic time or are not text at all; these are the ones of the web.
_KNOWN: Final = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d{1,2}|(windows-|cp)125\d|koi8-[ru]|macintosh"
    r"|shift[_-]jis|euc-(jp|kr)|iso-2022-jp|gbk|gb2312|gb18030|big5"
)
_NAMED: Final = re.compile(r"charset\s*=\s*[\"']?\s*([\w-]{1,40})", re.IGNORECASE)
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_LOOKED_AT: Final = 2048


def decoded(body: bytes, content_type: str) -> str:
    """The text of a body, by its mark, its header or what it says of itself; what does not fit is replaced."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body.decode(charset, "replace")
    named = _NAMED.search(content_type) or _NAMED.search(body[:_LOOKED_AT].decode("latin-1"))
    charset = named[1].lower() if named else "utf-8"
    try:
        return body.decode(charset if _KNOWN.fullmatch(charset) else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def kind_of(content_type: str) -> str:
    """The media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_text(kind: str) -> bool:
    """Whether a media type is read as text."""
    return (
        kind.startswith("text/")
        or kind.endswith(("+json", "+xml"))
        or kind in ("", "application/json", "application/xml", "application/javascript", "application/yaml")
        or kind in ("application/x-www-form-urlencoded", "application/x-ndjson", "application/toml")
    )
