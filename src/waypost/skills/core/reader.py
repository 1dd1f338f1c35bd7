"""Pages and feeds as data: a program of its own, because parsers can be kept busy for minutes by a hostile page.

It reads a line of JSON and the document from its input and writes JSON. It imports nothing of Waypost, so that it
starts fast; `bodies.py` runs it.
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
MOST_LINKS: Final = 500
MOST_SUMMARY: Final = 1000
ENOUGH: Final = 200
"""Characters that make a part of a page its main part."""

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
_KEPT: Final = "\0"
"""Marks a line whose blanks stay; no page holds it, since HTML has no such character."""
_EMPHASIS: Final = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}


def page(html: str, url: str, form: str, most: int) -> dict[str, Any]:
    """The title and the readable part of a page, as text, Markdown or HTML, and where it links to."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    heading = tree.css_first("title")
    title = " ".join(heading.text().split()) if heading is not None else ""
    found: dict[str, Any] = {"url": url, "title": title}
    if form == "html":
        return found | _cut("html", html, most)
    links = _links(tree.css("a[href]"), url)
    if form == "links":
        return found | {"links": links}
    for node in tree.css(", ".join(_NOISE)):
        node.decompose()
    main = _main_part([node for query in _MAIN for node in tree.css(query)[:1]])
    text = _Writing(url, form == "markdown").written(main) if main is not None else ""
    return found | _cut("text", text, most) | {"links": links}


def _cut(name: str, text: str, most: int) -> dict[str, Any]:
    return {name: text[:most], "truncated": len(text) > most}


def _main_part(candidates: list[LexborNode]) -> LexborNode | None:
    """The first part that holds enough text, else the whole."""
    for node in candidates:
        if len(node.text().strip()) >= ENOUGH:
            return node
    return candidates[-1] if candidates else None


def _links(nodes: list[LexborNode], base: str) -> list[dict[str, str]]:
    """Web links, each once, in the order of the page."""
    found: dict[str, str] = {}
    for node in nodes:
        to = _web_address(base, node.attributes.get("href") or "")
        if to and to not in found:
            found[to] = " ".join(node.text().split())[:200]
            if len(found) == MOST_LINKS:
                break
    return [{"text": text, "url": to} for to, text in found.items()]


def _web_address(base: str, to: str) -> str:
    try:
        whole = urljoin(base, to.strip()).partition("#")[0]
        return whole if urlsplit(whole).scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Every node of a tree when it begins and when it ends; no recursion, since pages nest without limit."""
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


class _Writing:
    """Text with its paragraphs, and as Markdown also with its headings, lists, links and emphasis."""

    def __init__(self, base: str, markdown: bool) -> None:
        self._base = base
        self._markdown = markdown
        self._out: list[str] = []
        self._kept_as_is = 0

    def written(self, root: LexborNode) -> str:
        """The text of a tree."""
        for node, begins in _walk(root):
            if node.is_text_node:
                if begins:
                    self._text(node.text_content or "")
            elif node.tag and begins:
                self._begin(node, node.tag)
            elif node.tag:
                self._end(node, node.tag)
        return _tidy("".join(self._out))

    def _begin(self, node: LexborNode, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._out.append("\n\n")
        elif tag in _LINES:
            self._out.append("\n")
        elif tag in ("td", "th"):
            self._out.append(" ")
        if self._markdown:
            self._out.append(self._mark(node, tag, True))
        self._kept_as_is += tag == "pre"

    def _end(self, node: LexborNode, tag: str) -> None:
        self._kept_as_is -= tag == "pre"
        if self._markdown:
            self._out.append(self._mark(node, tag, False))
        if tag in _PARAGRAPHS:
            self._out.append("\n\n")

    def _text(self, text: str) -> None:
        if self._kept_as_is:
            self._out.append(_KEPT + text.replace("\n", "\n" + _KEPT))
            return
        words = " ".join(text.split())
        before = " " if text[:1].isspace() else ""
        after = " " if text[-1:].isspace() else ""
        self._out.append(f"{before}{words}{after}" if words else " ")

    def _mark(self, node: LexborNode, tag: str, begins: bool) -> str:
        """What Markdown writes where an element begins or ends."""
        if tag in _EMPHASIS:
            return "" if self._kept_as_is else _EMPHASIS[tag]
        if tag == "pre":
            return "```\n" if begins else "\n```"
        if tag == "a" and (to := _web_address(self._base, node.attributes.get("href") or "")):
            return "[" if begins else f"]({to})"
        return (_HEADINGS.get(tag) or ("- " if tag == "li" else "")) if begins else ""


def _tidy(text: str) -> str:
    """Single blanks within lines outside code, at most one empty line between them."""
    lines: list[str] = []
    for line in text.split("\n"):
        plain = line.replace(_KEPT, "").rstrip() if _KEPT in line else " ".join(line.split())
        if plain or (lines and lines[-1]):
            lines.append(plain)
    return "\n".join(lines).strip()


def feed(body: bytes, url: str, content_type: str) -> dict[str, Any]:
    """The title of a feed and its items; `known` says whether it is a feed at all."""
    import feedparser  # type: ignore[import-untyped]

    # A stream: text or bytes would be taken for an address or a file's name first.
    headers = {"content-type": content_type, "content-location": url}
    parsed = feedparser.parse(
        io.BytesIO(body), response_headers=headers, sanitize_html=False, resolve_relative_uris=False
    )
    items = [_item(entry, url) for entry in parsed.entries]
    return {"known": bool(parsed.version or items), "title": _plain(parsed.feed.get("title")), "items": items}


def _item(entry: Mapping[str, Any], base: str) -> dict[str, Any]:
    link = _web_address(base, str(entry.get("link") or ""))
    summary = entry.get("summary") or ""
    return {
        "id": str(entry.get("id") or link),
        "title": _plain(entry.get("title")),
        "url": link,
        "published": _moment(entry.get("published_parsed") or entry.get("updated_parsed")),
        "summary": _plain(summary)[:MOST_SUMMARY],
    }


def _plain(html: Any) -> str:
    from selectolax.lexbor import LexborHTMLParser

    text = str(html or "")
    if "<" in text or "&" in text:
        text = LexborHTMLParser(text).text(separator=" ")
    return " ".join(text.split())


def _moment(parsed: Any) -> str | None:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(calendar.timegm(parsed))) if parsed else None
    except (ValueError, OverflowError, TypeError):
        return None


def main() -> None:
    """Serve one request from standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    document = sys.stdin.buffer.read()
    try:
        if asked["what"] == "page":
            answer = page(document.decode("utf-8", "replace"), asked["url"], asked["form"], asked["most"])
        else:
            answer = feed(document, asked["url"], asked["type"])
    except ImportError as error:
        answer = {"missing": error.name}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
