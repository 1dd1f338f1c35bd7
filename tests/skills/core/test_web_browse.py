"""Reading pages: text, Markdown, links and HTML, and pages that keep a parser busy."""

from __future__ import annotations

import os
from typing import Any

import pytest
from aiohttp import web

from tests.outbound.internet import Answer
from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, serving
from waypost.errors import ToolError
from waypost.skills.core import inputs
from waypost.skills.core.inputs import read_page
from waypost.skills.core.reader import read_page as parse_page

LONG = "This sentence is part of the article and long enough to count. " * 5
PAGE = f"""<!doctype html><html><head><title> A  title </title><style>p {{color: red}}</style></head><body>
<nav><a href="/menu">Menu</a></nav><header>Site</header>
<article><h1>Heading</h1><p>First   <b>bold</b> and <a href="../b?c=1#frag">a link</a>.</p>
<ul><li>one</li><li>two</li></ul><pre>x = 1
  y = 2</pre><script>alert("no")</script><p hidden>hidden words</p><p>{LONG}</p></article>
<a href="javascript:alert(1)">bad</a><a href="mailto:a@b.c">mail</a><a href="http://[">broken</a>
<footer>Imprint</footer></body></html>"""


def saying(body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200) -> Answer:
    data = body.encode() if isinstance(body, str) else body

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=data, headers={"Content-Type": kind}, status=status)

    return answer


async def browsed(body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **given: Any) -> Any:
    async with serving(saying(body, kind, status)) as base, calling() as call:
        reply = await call("web_browse", url=f"{base}/docs/a", **given)
        return reply.text if reply.is_error else reply.structured


@asynchronous
async def test_the_readable_text_of_a_page_has_its_paragraphs_and_no_menus_or_scripts() -> None:
    said = await browsed(PAGE)

    assert said["title"] == "A title"
    assert said["text"].startswith("Heading\n\nFirst bold and a link.\n\none\ntwo\n\nx = 1\n  y = 2\n\n")
    assert said["truncated"] is False
    assert all(noise not in said["text"] for noise in ("Menu", "alert", "hidden words", "Imprint", "color"))


@asynchronous
async def test_a_page_as_markdown_keeps_headings_links_lists_and_code() -> None:
    text = (await browsed(PAGE, extract="markdown"))["text"]

    assert text.startswith("# Heading\n\nFirst **bold** and [a link](http://127.0.0.1:")
    assert "/b?c=1)." in text
    assert "- one\n- two\n" in text
    assert "```\nx = 1\n  y = 2\n```" in text


@asynchronous
async def test_links_are_absolute_urls_without_duplicates() -> None:
    said = await browsed(PAGE + PAGE, extract="links")

    assert [link["text"] for link in said["links"]] == ["Menu", "a link"]
    assert said["links"][1]["url"].endswith("/b?c=1")
    assert "text" not in said


@asynchronous
async def test_html_is_returned_unchanged_up_to_the_limit() -> None:
    assert (await browsed("<p>hi</p>", extract="html"))["html"] == "<p>hi</p>"
    long = await browsed("<p>" + "x" * 200_000, extract="html")
    assert (len(long["html"]), long["truncated"]) == (100_000, True)


@asynchronous
async def test_text_is_cut_at_the_limit() -> None:
    said = await browsed("<p>" + "word " * 100_000)

    assert (len(said["text"]), said["truncated"]) == (100_000, True)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"<p>caf\xe9</p>", "text/html; charset=iso-8859-1", "caf\u00e9"),
        (b"<meta charset=windows-1252><p>\x93hi\x94</p>", "text/html", "\u201chi\u201d"),
        ("<p>\u00fc</p>".encode("utf-16"), "text/html", "\u00fc"),
        (b"<p>\xff\xfe ok</p>", "text/html", "\ufffd\ufffd ok"),
        (b"just text\n  here", "text/plain", "just text\n  here"),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"", "text/html", ""),
        (b"<p>a &amp; b &lt;c&gt;</p>", "text/html", "a & b <c>"),
    ],
)
@asynchronous
async def test_a_page_reads_in_its_own_encoding(body: bytes, kind: str, text: str) -> None:
    assert (await browsed(body, kind))["text"] == text


@asynchronous
async def test_a_response_that_is_not_a_page_is_an_error() -> None:
    assert await browsed("gone", status=404) == "The page answered 404."
    assert await browsed(b"%PDF", "application/pdf") == "A page of the kind application/pdf cannot be read as text."
    assert "more than 4194304 bytes" in await browsed(bytes(4 * 1024 * 1024 + 1))
    async with calling() as call:
        assert (await call("web_browse")).text == "url is missing."
        assert "extract must be" in (await call("web_browse", url="http://x", config={"extract": "pdf"})).text


@asynchronous
async def test_a_page_that_keeps_the_parser_busy_times_out_and_its_process_ends() -> None:
    before = children()
    with pytest.raises(ToolError, match=r"could not be read within 0\.5 s"):
        await read_page("<div>" * 200_000, "http://x.example/", "text", 1000, within=0.5)

    assert children() == before


@asynchronous
async def test_a_page_that_nests_deeply_is_read() -> None:
    said = await read_page("<b>" * 20_000 + "deep", "http://x.example/", "markdown", 100_000)

    assert "deep" in said["text"]


@asynchronous
async def test_a_missing_library_is_an_error_that_names_its_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    reader = tmp_path / "reading.py"
    reader.write_text('import sys; sys.stdin.read(); print(\'{"missing": "selectolax"}\')')
    monkeypatch.setattr(inputs, "READER", reader)
    with pytest.raises(ToolError, match=r"selectolax is missing.*pip install 'waypost\[skills\]'"):
        await read_page("<p>", "http://x.example/", "text", 10)


@asynchronous
async def test_a_crashing_parser_is_an_error_of_one_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    reader = tmp_path / "reading.py"
    reader.write_text("import os; os.abort()")
    monkeypatch.setattr(inputs, "READER", reader)
    with pytest.raises(ToolError, match="could not be read"):
        await read_page("<p>" * 100_000, "http://x.example/", "text", 10)


def test_the_first_part_with_enough_text_is_the_main_one() -> None:
    short = parse_page(f"<article>tiny</article><main>{LONG}</main><p>rest</p>", "http://x.example/", "text", 1000)
    none = parse_page("<article>tiny</article><p>rest</p>", "http://x.example/", "text", 1000)

    assert "rest" not in short["text"]
    assert none["text"] == "tiny\n\nrest"


def children() -> set[str]:
    """The processes that this one started and that still run."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                parent = stat.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(os.getpid()):
            found.add(pid)
    return found
