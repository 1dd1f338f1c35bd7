"""How pages become HTML: the templates and their filters, static files, and the headers of every response."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape

from waypost.transports.http.app import OperatorAnswer

_HERE: Final = Path(__file__).parent
_STATIC: Final = _HERE / "static"
_TYPES: Final = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8", ".svg": b"image/svg+xml"}
MAX_TEXT_CHARACTERS: Final = 2000
MAX_SHOWN_BYTES: Final = 6_000
"""How much of a value is shown: the characters of one text, and the bytes of all as HTML."""
_PART_BYTES: Final = 70
"""The markup around one part of a value."""
_LEAST_CHARACTERS: Final = 20
CHARACTERS_PER_TOKEN: Final = 4

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # `no-referrer` would make browsers send the forms of these pages with the origin `null`, which is refused.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_UNCACHED: Final = (b"cache-control", b"no-store")


class StaticFile(NamedTuple):
    """A file of the console, read and compressed once."""

    plain: bytes
    compressed: bytes
    kind: bytes
    digest: str


@cache
def find_static(name: str) -> StaticFile | None:
    """A static file by its path; `None` for every path that is not one."""
    if name not in list_static():
        return None
    plain = (_STATIC / name).read_bytes()
    kind = _TYPES.get(Path(name).suffix, b"text/plain; charset=utf-8")
    return StaticFile(plain, gzip.compress(plain, mtime=0), kind, sha256(plain).hexdigest()[:12])


@cache
def list_static() -> frozenset[str]:
    """The paths of all static files."""
    return frozenset(str(file.relative_to(_STATIC).as_posix()) for file in _STATIC.rglob("*") if file.is_file())


def serve_static(path: str, headers: Mapping[bytes, bytes]) -> OperatorAnswer:
    """Answer `static/<digest>/<name>`; a file with another digest is another file, so it is cached for a year."""
    digest, _, name = path.partition("/")
    file = find_static(name)
    if file is None or file.digest != digest:
        return OperatorAnswer(404, b"Not found.", b"text/plain", SECURITY_HEADERS)
    caching = (b"cache-control", b"public, max-age=31536000, immutable")
    if b"gzip" in headers.get(b"accept-encoding", b""):
        encoding = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
        return OperatorAnswer(200, file.compressed, file.kind, (caching, *encoding, *SECURITY_HEADERS))
    return OperatorAnswer(200, file.plain, file.kind, (caching, *SECURITY_HEADERS))


@cache
def environment() -> Environment:
    """The templates, in which every value is escaped."""
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "time": show_time,
        "bounded": bound_value,
        "pretty": show_json,
        "tokens": count_tokens,
        "number": lambda value: f"{value:,}",
        "bytes": show_bytes,
        "duration": show_duration,
        "milliseconds": show_milliseconds,
        "sentence": show_sentence,
    }
    return found


@cache
def _from_file(path: Path) -> Template:
    return environment().from_string(path.read_text())


def compile_templates() -> None:
    """Compile all templates of the console, so that no page has to; it takes a while and is for a thread."""
    for name in environment().list_templates():
        environment().get_template(name)


def render(template: str | Path, context: Mapping[str, Any]) -> str:
    """A page as HTML."""
    found = _from_file(template) if isinstance(template, Path) else environment().get_template(template)
    return found.render(context)


def to_answer(html: str, status: int = 200, *headers: tuple[bytes, bytes]) -> OperatorAnswer:
    """A page as a response."""
    return OperatorAnswer(status, html.encode(), b"text/html; charset=utf-8", (_UNCACHED, *SECURITY_HEADERS, *headers))


def redirect(location: str, *headers: tuple[bytes, bytes]) -> OperatorAnswer:
    """A redirect that a browser follows with GET."""
    return OperatorAnswer(
        303, b"", b"text/plain", ((b"location", location.encode()), _UNCACHED, *SECURITY_HEADERS, *headers)
    )


# Filters


def show_time(value: str | float | None) -> Markup:
    """A time that the browser shows in the reader's zone; without a script, in UTC."""
    if value is None or value == "":
        return Markup('<span class="dim">never</span>')
    at = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    # Digits and signs only, so that nothing has to be escaped: a page has up to a hundred of them.
    return Markup(f'<time datetime="{at.astimezone(UTC).isoformat()}" title="{exact}">{exact}</time>')  # noqa: S704


def show_milliseconds(value: float) -> str:
    """How long a call took; two digits of one that took less than a millisecond, as most of them do."""
    return f"{value:,.1f} ms" if value >= 1 else f"{value:.2g} ms"


def show_sentence(text: str) -> Markup:
    """A sentence in which what stands between backticks is code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part) for n, part in enumerate(parts)
    )


def count_html_bytes(value: Any) -> int:
    """About how many bytes a value takes as HTML, in which a quote alone takes five."""
    if isinstance(value, str):
        return len(escape(value).encode("utf-8", "replace")) + _PART_BYTES
    if isinstance(value, dict):
        return _PART_BYTES + sum(count_html_bytes(item) + len(escape(name)) for name, item in value.items())
    if isinstance(value, list):
        return _PART_BYTES + sum(map(count_html_bytes, value))
    return _PART_BYTES


def bound_value(value: Any) -> Any:
    """A value that takes at most so many bytes as HTML; what is left out is said in its place."""
    left = MAX_SHOWN_BYTES

    def cut(text: str) -> str:
        nonlocal left
        # Each character takes at least one byte.
        piece = text[: min(MAX_TEXT_CHARACTERS, max(left, _LEAST_CHARACTERS))]
        while (size := len(escape(piece).encode("utf-8", "replace"))) > left and len(piece) > _LEAST_CHARACTERS:
            piece = piece[: max(_LEAST_CHARACTERS, len(piece) * left // size)]
        left -= size
        return text if len(piece) == len(text) else f"{piece}… ({len(text):,} characters)"

    def bound(part: Any) -> Any:
        nonlocal left
        left -= _PART_BYTES
        if isinstance(part, str):
            return cut(part)
        if isinstance(part, dict):
            kept = {}
            for place, (name, item) in enumerate(part.items()):
                if left <= 0:
                    kept["…"] = f"{len(part) - place:,} more"
                    break
                kept[cut(name)] = bound(item)
            return kept
        if isinstance(part, list):
            items = []
            for place, item in enumerate(part):
                if left <= 0:
                    items.append(f"… {len(part) - place:,} more")
                    break
                items.append(bound(item))
            return items
        return part

    return bound(value)


def split_text(text: str, max_bytes: int) -> list[str]:
    """A text in pieces of at most so many bytes as HTML, in which a quote alone takes five."""
    pieces, start = [], 0
    while start < len(text):
        piece = text[start : start + max_bytes]
        while (size := len(escape(piece).encode())) > max_bytes:
            piece = piece[: max(1, len(piece) * max_bytes // size)]
        pieces.append(piece)
        start += len(piece)
    return pieces or [""]


def show_json(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def count_tokens(value: Any) -> int:
    """About how many tokens a value takes as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def show_bytes(value: float) -> str:
    """A size with a unit."""
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def show_duration(seconds: float) -> str:
    """A duration in its two greatest units."""
    rest, parts = int(seconds), []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if rest >= length:
            parts.append(f"{rest // length} {unit}")
            rest %= length
    return " ".join(parts[:2]) or "0 s"
