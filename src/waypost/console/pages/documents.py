"""Documents and prompts: what agents read, rendered as inert HTML.

Documents come from workers and upstreams. So nothing of their text becomes a tag or an attribute as it is: each piece
is escaped, the tags are those below, and a link leads to http or https only.
"""

from __future__ import annotations

import re
from typing import Any, Final

from markupsafe import Markup, escape

from waypost.console.page import Done, Page, Refused, View, segment

MAX_CHARACTERS: Final = 20_000
MAX_BYTES: Final = 24_000
"""How much of a document the page shows: of its text, and as HTML."""
_MAX_COLUMNS: Final = 20
_TAG_BYTES: Final = 10
_FENCE: Final = re.compile(r"\s{0,3}(```|~~~)")
_HEADING: Final = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_ITEM: Final = re.compile(r"\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)")
_TABLE_ROW: Final = re.compile(r"\s{0,3}\|(.*)\|\s*$")
_TABLE_RULE: Final = re.compile(r"\s{0,3}\|(?:\s*:?-+:?\s*\|)+\s*$")
_RULE: Final = re.compile(r"\s{0,3}([-*_])(?:\s*\1){2,}\s*$")
_INLINE: Final = re.compile(
    r"`([^`]{1,500})`"
    r"|\*\*([^*]{1,500})\*\*"
    r"|(?<!\w)[*_]([^*_]{1,500})[*_](?!\w)"
    r"|!?\[([^\]]{0,300})\]\(([^)\s]{1,1000})\)"
)

_LINK: Final = Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>')


def render_markdown(text: str) -> Markup:
    """A text as HTML, up to `MAX_BYTES`; headings begin at the third level, below those of a page."""
    html, read = _render_blocks(text[:MAX_CHARACTERS])
    # Only a block that is too large by itself is rendered again: a quote is five bytes as HTML.
    while (size := len(html.encode())) > MAX_BYTES:
        html, read = _render_blocks(text[: read * MAX_BYTES // size * 9 // 10])
    if read < len(text):
        more = f"{len(text) - read:,} more characters are not shown."
        html += Markup('\n<p class="dim">{}</p>').format(more)
    return html


def _render_blocks(text: str) -> tuple[Markup, int]:
    """A text as HTML, and how much of it was rendered before there was enough for a page."""
    blocks, read = _Blocks(), 0
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        if blocks.size > MAX_BYTES * 3 // 4:
            break
        read += len(line)
        line = line.rstrip("\r\n")
        if fence := _FENCE.match(line):
            code = []
            for inside in lines:
                read += len(inside)
                if inside.strip().startswith(fence[1]):
                    break
                code.append(inside.rstrip("\r\n"))
            blocks.add(Markup('<pre tabindex="0">{}</pre>').format("\n".join(code)))
        else:
            blocks.add_line(line)
    blocks.flush()
    return Markup("\n").join(blocks.done), read


class _Blocks:
    """The blocks so far, and the paragraph or list that the next line may continue."""

    def __init__(self) -> None:
        self.done: list[Markup] = []
        self._paragraph: list[str] = []
        self._items: list[str] = []
        self._rows: list[str] = []
        self._is_numbered = False
        self.size = 0
        """About how many bytes the lines so far are as HTML."""

    def add(self, block: Markup) -> None:
        self.flush()
        self.done.append(block)

    def add_line(self, line: str) -> None:
        self.size += len(line) + _TAG_BYTES * (1 + line.count("|"))
        if row := _TABLE_ROW.match(line):
            if not self._rows:
                self.flush()
            self._rows.append(line if _TABLE_RULE.match(line) else row[1])
            return
        if self._rows:
            self.flush()
        if heading := _HEADING.match(line):
            level = min(6, len(heading[1]) + 2)
            self.add(Markup("<h{0}>{1}</h{0}>").format(level, _render_inline(heading[2])))
        elif not line.strip() or _RULE.match(line):
            self.flush()
        elif item := _ITEM.match(line):
            self._add_item(item[2], item[1] is not None)
        elif line.lstrip().startswith(">"):
            self.add(Markup("<blockquote>{}</blockquote>").format(_render_inline(line.lstrip("> "))))
        elif self._items and line.startswith((" ", "\t")):
            self._items[-1] += f" {line.strip()}"
        else:
            if self._items:
                self.flush()
            self._paragraph.append(line.strip())

    def _add_item(self, text: str, is_numbered: bool) -> None:
        if self._paragraph or self._is_numbered != is_numbered:
            self.flush()
        self._is_numbered = is_numbered
        self._items.append(text)

    def flush(self) -> None:
        if self._paragraph:
            self.done.append(Markup("<p>{}</p>").format(_render_inline(" ".join(self._paragraph))))
            self._paragraph.clear()
        if self._items:
            inner = Markup("").join(Markup("<li>{}</li>").format(_render_inline(item)) for item in self._items)
            self.done.append(Markup("<{0}>{1}</{0}>").format("ol" if self._is_numbered else "ul", inner))
            self._items.clear()
        if self._rows:
            self.done.append(_render_table(self._rows))
            self._rows.clear()


def _render_table(rows: list[str]) -> Markup:
    """Rows of a table; those before its rule are its head."""
    parts, tag = [], "th" if any(map(_TABLE_RULE.match, rows[:2])) else "td"
    for row in rows:
        if _TABLE_RULE.match(row):
            tag = "td"
            continue
        cells = (
            Markup("<{0}>{1}</{0}>").format(tag, _render_inline(cell.strip())) for cell in row.split("|", _MAX_COLUMNS)
        )
        parts.append(Markup("<tr>{}</tr>").format(Markup("").join(cells)))
    return Markup("<table><tbody>{}</tbody></table>").format(Markup("").join(parts))


def _render_inline(text: str) -> Markup:
    parts: list[Markup] = []
    place = 0
    for found in _INLINE.finditer(text):
        parts.append(escape(text[place : found.start()]))
        code, strong, emphasis, label, target = found.groups()
        if code is not None:
            parts.append(Markup("<code>{}</code>").format(code))
        elif strong is not None:
            parts.append(Markup("<strong>{}</strong>").format(strong))
        elif emphasis is not None:
            parts.append(Markup("<em>{}</em>").format(emphasis))
        elif target.startswith(("https://", "http://")):
            parts.append(_LINK.format(target, (label or target).strip("`")))
        else:
            parts.append(Markup("{} <code>{}</code>").format(label.strip("`"), target))
        place = found.end()
    parts.append(escape(text[place:]))
    return Markup("").join(parts)


MAX_ROWS: Final = 60


async def load(view: View) -> dict[str, Any]:
    """Documents and prompts whose names contain the text in the URL, and one document if the URL names it."""
    text, shown = view.query.get("q", "").strip().lower(), view.query.get("id", "")
    try:
        documents = (await view.api.get("documents"))["documents"]
    except Refused as error:  # a hub may be configured without documents
        if error.status != 400:
            raise
        documents = []
    prompts = (await view.api.get("prompts"))["prompts"]
    documents = [one for one in documents if text in one["id"].lower()]
    prompts = [one for one in prompts if text in one["name"].lower()]
    document = (await view.api.get("document", id=shown)) if shown else None
    return {
        "documents": documents[:MAX_ROWS],
        "prompts": prompts[:MAX_ROWS],
        "counts": (len(documents), len(prompts)),
        "document": document,
        "rendered": None if document is None else render_markdown(document["skill"]),
        "text": text,
    }


async def create(view: View) -> Done:
    """Publish a document."""
    body = {"id": view.form.get("id", "").strip(), "skill": view.form.get("skill", "")}
    document = (await view.api.post("documents", body))["document"]
    notes = "".join(f" Note: {one}." for one in document.get("warnings", ()))
    return Done(f"{document['id']} is published.{notes}")


async def remove(view: View) -> Done:
    """Remove a document or a prompt that was published."""
    if name := view.form.get("prompt"):
        await view.api.delete(f"prompts/{segment(name)}")
        return Done(f"The prompt {name} is removed.")
    gone = (await view.api.delete("documents", id=view.form.get("id", "")))["document"]["id"]
    view.query = {name: value for name, value in view.query.items() if name != "id"}
    return Done(f"The document {gone} is removed.")


PAGE: Final = Page(
    "documents",
    "Documents",
    "documents.html",
    load,
    {"create": create, "remove": remove},
    section="Sources",
    icon="documents",
    shortcut="d",
    live=("documents", "prompts", "resources"),
)
