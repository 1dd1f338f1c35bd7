"""Bodies of HTTP responses: decoded text, and pages and feeds parsed in a process that can be killed."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.errors import ToolError
from waypost.execution.processes import make_environment, run_process

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


READER: Final = Path(__file__).with_name("reader.py")
MOST_BYTES: Final = 16 * 1024 * 1024
WITHIN: Final = 10.0
MISSING: Final = "The library {} is missing; it comes with pip install 'waypost[skills]'."


async def read_page(html: str, url: str, form: str, most: int, within: float = WITHIN) -> dict[str, Any]:
    """A page's title, readable part and links."""
    return await _read(
        {"what": "page", "url": url, "form": form, "most": most}, html.encode("utf-8", "replace"), within
    )


async def read_feed(body: bytes, url: str, content_type: str, within: float = WITHIN) -> dict[str, Any]:
    """A feed's title and items."""
    return await _read({"what": "feed", "url": url, "type": content_type}, body, within)


async def _read(asked: dict[str, Any], document: bytes, within: float) -> dict[str, Any]:
    directory = Path(tempfile.gettempdir())
    variables = make_environment(directory) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    given = msgspec.json.encode(asked) + b"\n" + document
    try:
        ended = await run_process(
            (sys.executable, "-P", str(READER)),
            directory,
            variables,
            within=within,
            max_bytes=MOST_BYTES,
            stdin_data=given,
        )
    except TimeoutError:
        raise ToolError(f"What was fetched could not be read within {within:g} s.") from None
    if ended.code != 0 or ended.truncated:
        raise ToolError("What was fetched could not be read.")
    answer: dict[str, Any] = msgspec.json.decode(ended.out)
    if "missing" in answer:
        raise ToolError(MISSING.format(answer["missing"]))
    return answer
