"""What core skills work with: the operator's settings, the arguments of a call, and bodies of HTTP responses.

Pages and feeds are parsed in a process that can be killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.errors import DefinitionError, ToolError
from waypost.execution.processes import make_environment, run_process

if TYPE_CHECKING:
    from waypost.outbound.egress import Egress  # loads aiohttp


MAX_CONCURRENT_FEEDS: Final = 4


@dataclass(frozen=True)
class CoreSettings:
    """The operator's settings for core skills; no argument of a call changes them.

    `egress` reaches the addresses that callers name, `operator_egress` those that the operator configured.
    """

    egress: Egress
    operator_egress: Egress | None = None
    searxng: str | None = None
    shell_allowed: tuple[tuple[str, ...], ...] = ()
    shell_directory: Path = Path()
    data_directory: Path = Path()
    timeout: float = 30.0
    feed_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_FEEDS))

    def __post_init__(self) -> None:
        # An empty prefix would allow every command.
        if not all(prefix and all(prefix) for prefix in self.shell_allowed):
            raise DefinitionError("A command allowed to the shell skill needs at least a program.")


def get_field(args: Mapping[str, Any], name: str) -> Any:
    """Return a typed field, else the same key of `config`, else None."""
    given = args.get(name)
    if given is not None:
        return given
    config = args.get("config")
    return config.get(name) if isinstance(config, Mapping) else None


def get_text(args: Mapping[str, Any], name: str) -> str:
    """Return a text field, or an empty text."""
    given = get_field(args, name)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise ToolError(f"{name} must be text.")
    return given


def require_text(args: Mapping[str, Any], name: str) -> str:
    """Return a text field, or the whole input in its place; one of them must be given."""
    given = (get_text(args, name) or get_input(args)).strip()
    if not given:
        raise ToolError(f"{name} is missing.")
    return given


def get_integer(args: Mapping[str, Any], name: str, default: int, maximum: int) -> int:
    """Return an integer of at least 1; one above the maximum becomes the maximum."""
    given = get_field(args, name)
    if given is None:
        return default
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ToolError(f"{name} must be a whole number above 0.")
    return min(given, maximum)


def get_input(args: Mapping[str, Any]) -> str:
    """Return the input as text; data becomes JSON."""
    given = args.get("input")
    if given is None:
        return ""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


# Python knows codecs that take quadratic time or are not text at all; these are the ones of the web.
_CHARSETS: Final = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d{1,2}|(windows-|cp)125\d|koi8-[ru]|macintosh"
    r"|shift[_-]jis|euc-(jp|kr)|iso-2022-jp|gbk|gb2312|gb18030|big5"
)
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?\s*([\w-]{1,40})", re.IGNORECASE)
_BYTE_ORDER_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CHARSET_SEARCH_BYTES: Final = 2048

READER: Final = Path(__file__).with_name("reader.py")
MAX_READER_BYTES: Final = 16 * 1024 * 1024
READER_TIMEOUT_S: Final = 10.0
MISSING: Final = "The library {} is missing; it comes with pip install 'waypost[skills]'."


def decode(body: bytes, content_type: str) -> str:
    """Decode a body by its byte order mark, its header or its own declaration; undecodable bytes are replaced."""
    for mark, charset in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body.decode(charset, "replace")
    declared = _CHARSET.search(content_type) or _CHARSET.search(body[:_CHARSET_SEARCH_BYTES].decode("latin-1"))
    charset = declared[1].lower() if declared else "utf-8"
    try:
        return body.decode(charset if _CHARSETS.fullmatch(charset) else "utf-8", "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def media_type(content_type: str) -> str:
    """Return the media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_text(kind: str) -> bool:
    """Return whether a media type is read as text."""
    return (
        kind.startswith("text/")
        or kind.endswith(("+json", "+xml"))
        or kind in ("", "application/json", "application/xml", "application/javascript", "application/yaml")
        or kind in ("application/x-www-form-urlencoded", "application/x-ndjson", "application/toml")
    )


async def read_page(
    html: str, url: str, form: str, max_characters: int, within: float = READER_TIMEOUT_S
) -> dict[str, Any]:
    """Return a page's title, main text and links."""
    request = {"what": "page", "url": url, "form": form, "max_characters": max_characters}
    return await _run_reader(request, html.encode("utf-8", "replace"), within)


async def read_feed(body: bytes, url: str, content_type: str) -> dict[str, Any]:
    """Return a feed's title and items."""
    return await _run_reader({"what": "feed", "url": url, "type": content_type}, body, READER_TIMEOUT_S)


async def _run_reader(request: dict[str, Any], document: bytes, within: float) -> dict[str, Any]:
    # Parsers can be kept busy for minutes by a hostile page, and a thread cannot be stopped.
    directory = Path(tempfile.gettempdir())
    try:
        ended = await run_process(
            (sys.executable, "-P", str(READER)),
            directory,
            make_environment(directory) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            within=within,
            max_bytes=MAX_READER_BYTES,
            stdin_data=msgspec.json.encode(request) + b"\n" + document,
        )
    except TimeoutError:
        raise ToolError(f"What was fetched could not be read within {within:g} s.") from None
    if ended.code != 0 or ended.truncated:
        raise ToolError("What was fetched could not be read.")
    answer: dict[str, Any] = msgspec.json.decode(ended.out)
    if "missing" in answer:
        raise ToolError(MISSING.format(answer["missing"]))
    return answer
