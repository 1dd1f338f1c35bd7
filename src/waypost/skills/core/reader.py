"""Pages and feeds as data: a separate program, because a hostile page can keep a parser busy for minutes.

It reads a line of JSON and the document from its input and writes JSON. It imports nothing of Waypost, so that it
starts fast; `inputs.py` runs it.
"""

from __future__ import annotations

import calendar
import io
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

CPU_SECONDS: Final = 10
MEMORY_BYTES: Final = 1024**3
MAX_LINKS: Final = 500
MAX_SUMMARY_CHARACTERS: Final = 1000
MIN_MAIN_CHARACTERS: Final = 200
"""An element with at least so much text counts as the main part of a page."""

_NOISE: Final = (
    *("script", "style", "noscript", "template", "svg", "canvas", "iframe", "object", "form", "button", "select"),
    *("nav", "footer", "aside", "dialog", "[hidden]", "[aria-hidden=true]", "[role=navigation]", "[role=banner]"),
)
_MAIN: Final = ("article", "main", "[role=main]", "#content", ".content", "body")
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_PARAGRAPHS: Final = frozenset(
    {"p", "div", "section", "article", "main", "header", "ul", "ol", "table", "blockquote", "pre", "figure", "dl", "hr"}
    | set(_HEADINGS)
)
_LINES: Final = frozenset({"br", "li", "tr", "dt", "dd", "figcaption", "option"})
_PRESERVED: Final = "\0"
"""Marks a line whose whitespace stays; HTML has no such character."""
_EMPHASIS: Final = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}


def read_page(html: str, url: str, form: str, max_characters: int) -> dict[str, Any]:
    """Return the title and main part of a page, as text, Markdown or HTML, and its links."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    heading = tree.css_first("title")
    title = " ".join(heading.text().split()) if heading is not None else ""
    found: dict[str, Any] = {"url": url, "title": title}
    if form == "html":
        return found | _truncate("html", html, max_characters)
    links = _list_links(tree.css("a[href]"), url)
    if form == "links":
        return found | {"links": links}
    for node in tree.css(", ".join(_NOISE)):
        node.decompose()
    main = _find_main([node for query in _MAIN for node in tree.css(query)[:1]])
    text = _TextWriter(url, form == "markdown").write(main) if main is not None else ""
    return found | _truncate("text", text, max_characters) | {"links": links}


def _truncate(name: str, text: str, max_characters: int) -> dict[str, Any]:
    return {name: text[:max_characters], "truncated": len(text) > max_characters}


def _find_main(candidates: list[LexborNode]) -> LexborNode | None:
    """Return the first element with enough text, else the last, which is the whole page."""
    for node in candidates:
        if len(node.text().strip()) >= MIN_MAIN_CHARACTERS:
            return node
    return candidates[-1] if candidates else None


def _list_links(nodes: list[LexborNode], base: str) -> list[dict[str, str]]:
    """Return the web links, each once, in the order of the page."""
    found: dict[str, str] = {}
    for node in nodes:
        to = _resolve_url(base, node.attributes.get("href") or "")
        if to and to not in found:
            found[to] = " ".join(node.text().split())[:200]
            if len(found) == MAX_LINKS:
                break
    return [{"text": text, "url": to} for to, text in found.items()]


def _resolve_url(base: str, to: str) -> str:
    try:
        whole = urljoin(base, to.strip()).partition("#")[0]
        return whole if urlsplit(whole).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Yield every node of a tree where it begins and where it ends; pages nest too deeply for recursion."""
    node = root
    while True:
        yield node, True
        if node.first_child is not None:
            node = node.first_child
            continue
        while True:
            yield node, False
            if node.mem_id == root.mem_id:
                return
            if node.next is not None:
                node = node.next
                break
            assert node.parent is not None
            node = node.parent


class _TextWriter:
    """Writes text with paragraphs, and as Markdown also headings, lists, links and emphasis."""

    def __init__(self, base: str, markdown: bool) -> None:
        self._base = base
        self._markdown = markdown
        self._out: list[str] = []
        self._preformatted = 0

    def write(self, root: LexborNode) -> str:
        """Return the text of a tree."""
        for node, begins in _walk(root):
            if node.is_text_node:
                if begins:
                    self._write_text(node.text_content or "")
            elif node.tag and begins:
                self._begin(node, node.tag)
            elif node.tag:
                self._end(node, node.tag)
        return _collapse("".join(self._out))

    def _begin(self, node: LexborNode, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._out.append("\n\n")
        elif tag in _LINES:
            self._out.append("\n")
        elif tag in ("td", "th"):
            self._out.append(" ")
        if self._markdown:
            self._out.append(self._mark(node, tag, True))
        self._preformatted += tag == "pre"

    def _end(self, node: LexborNode, tag: str) -> None:
        self._preformatted -= tag == "pre"
        if self._markdown:
            self._out.append(self._mark(node, tag, False))
        if tag in _PARAGRAPHS:
            self._out.append("\n\n")

    def _write_text(self, text: str) -> None:
        if self._preformatted:
            self._out.append(_PRESERVED + text.replace("\n", "\n" + _PRESERVED))
            return
        words = " ".join(text.split())
        before = " " if text[:1].isspace() else ""
        after = " " if text[-1:].isspace() else ""
        self._out.append(f"{before}{words}{after}" if words else " ")

    def _mark(self, node: LexborNode, tag: str, begins: bool) -> str:
        """Return the Markdown mark for the begin or end of an element."""
        if tag in _EMPHASIS:
            return "" if self._preformatted else _EMPHASIS[tag]
        if tag == "pre":
            return "```\n" if begins else "\n```"
        if tag == "a" and (to := _resolve_url(self._base, node.attributes.get("href") or "")):
            return "[" if begins else f"]({to})"
        return (_HEADINGS.get(tag) or ("- " if tag == "li" else "")) if begins else ""


def _collapse(text: str) -> str:
    """Collapse whitespace outside code, and empty lines to at most one."""
    lines: list[str] = []
    for line in text.split("\n"):
        plain = line.replace(_PRESERVED, "").rstrip() if _PRESERVED in line else " ".join(line.split())
        if plain or (lines and lines[-1]):
            lines.append(plain)
    return "\n".join(lines).strip()


def read_feed(body: bytes, url: str, content_type: str) -> dict[str, Any]:
    """Return the title of a feed and its items; `known` is whether it is a feed at all."""
    import feedparser  # type: ignore[import-untyped]

    # A stream, because feedparser would try text or bytes as a URL or a file name first.
    headers = {"content-type": content_type, "content-location": url}
    parsed = feedparser.parse(
        io.BytesIO(body), response_headers=headers, sanitize_html=False, resolve_relative_uris=False
    )
    items = [_to_item(entry, url) for entry in parsed.entries]
    return {"known": bool(parsed.version or items), "title": _to_plain_text(parsed.feed.get("title")), "items": items}


def _to_item(entry: Mapping[str, Any], base: str) -> dict[str, Any]:
    link = _resolve_url(base, str(entry.get("link") or ""))
    summary = entry.get("summary") or ""
    return {
        "id": str(entry.get("id") or link),
        "title": _to_plain_text(entry.get("title")),
        "url": link,
        "published": _to_timestamp(entry.get("published_parsed") or entry.get("updated_parsed")),
        "summary": _to_plain_text(summary)[:MAX_SUMMARY_CHARACTERS],
    }


def _to_plain_text(html: Any) -> str:
    from selectolax.lexbor import LexborHTMLParser

    text = str(html or "")
    if "<" in text or "&" in text:
        text = LexborHTMLParser(text).text(separator=" ")
    return " ".join(text.split())


def _to_timestamp(parsed: Any) -> str | None:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(calendar.timegm(parsed))) if parsed else None
    except (ValueError, OverflowError, TypeError):
        return None


def main() -> None:
    """Answer one request from standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    request = json.loads(sys.stdin.buffer.readline())
    document = sys.stdin.buffer.read()
    try:
        if request["what"] == "page":
            answer = read_page(
                document.decode("utf-8", "replace"), request["url"], request["form"], request["max_characters"]
            )
        else:
            answer = read_feed(document, request["url"], request["type"])
    except ImportError as error:
        answer = {"missing": error.name}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
