"""Collecting feeds: kinds, order, duplicates, failures, and hostile feeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.outbound.internet import Answer
from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, serving

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item><title>Old</title><link>/old</link><guid>1</guid><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate>
<description>&lt;p&gt;An &lt;b&gt;old&lt;/b&gt; story&lt;/p&gt;</description></item>
<item><title>New &amp;amp; shiny</title><link>https://example.com/new</link><guid>2</guid>
<pubDate>Tue, 02 Jan 2024 00:00:00 GMT</pubDate></item>
<item><title>Undated</title><link>https://example.com/undated</link></item></channel></rss>"""
ATOM = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Atoms</title>
<entry><title>Newest</title><id>urn:1</id><link href="https://example.com/newest"/>
<updated>2024-01-03T12:00:00+02:00</updated><summary>s</summary></entry>
<entry><title>Same story elsewhere</title><id>urn:2</id><link href="https://example.com/new"/>
<updated>2023-01-01T00:00:00Z</updated></entry></feed>"""
EMPTY = '<rss version="2.0"><channel><title>Nothing</title></channel></rss>'
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "haha">'
    + "".join(f'<!ENTITY {after} "{f"&{before};" * 10}">' for before, after in zip("abcdefgh", "bcdefghi", strict=True))
    + ']><rss version="2.0"><channel><item><title>&i;</title><guid>1</guid></item></channel></rss>'
)


def feeds(**bodies: str) -> Answer:
    """A server with a feed at each path."""

    async def answer(request: web.BaseRequest) -> web.Response:
        body = bodies.get(request.path.strip("/"))
        if body is None:
            return web.Response(status=404)
        return web.Response(text=body, content_type="application/xml")

    return answer


async def collected(given: dict[str, Any], **bodies: str) -> Any:
    """The answer of the skill; `BASE` in the arguments is the address of the server."""
    async with serving(feeds(**bodies)) as base, calling() as call:
        filled = {
            name: value.replace("BASE", base) if isinstance(value, str) else value for name, value in given.items()
        }
        if "urls" in filled:
            filled["urls"] = [url.replace("BASE", base) for url in filled["urls"]]
        reply = await call("rss_collector", **filled)
        return reply.text if reply.is_error else reply.structured


@asynchronous
async def test_the_items_of_all_feeds_are_ordered_by_date_without_duplicates() -> None:
    said = await collected({"urls": ["BASE/rss", "BASE/atom"]}, rss=RSS, atom=ATOM)

    assert [item["title"] for item in said["items"]] == ["Newest", "New & shiny", "Old", "Undated"]
    assert [item["published"] for item in said["items"][:2]] == ["2024-01-03T10:00:00Z", "2024-01-02T00:00:00Z"]
    assert said["items"][2]["url"].startswith("http://127.0.0.1:")
    assert said["items"][2]["summary"] == "An old story"
    assert said["items"][0]["feed"] == "Atoms"
    assert "errors" not in said


@pytest.mark.parametrize(
    "given",
    [{"url": "BASE/rss"}, {"input": "BASE/rss"}, {"input": "BASE/rss, BASE/rss\nBASE/atom"}, {"urls": ["BASE/rss"]}],
)
@asynchronous
async def test_feeds_can_be_given_in_several_ways(given: dict[str, Any]) -> None:
    assert len((await collected({**given, "max_items": 2}, rss=RSS, atom=ATOM))["items"]) == 2


@asynchronous
async def test_a_feed_without_items_is_empty() -> None:
    assert await collected({"url": "BASE/empty"}, empty=EMPTY) == {"items": []}


@asynchronous
async def test_a_failing_feed_does_not_affect_the_others() -> None:
    said = await collected({"urls": ["BASE/none", "BASE/rss", "BASE/page"]}, rss=RSS, page="<html><p>hi</p></html>")

    assert len(said["items"]) == 3
    assert [error["error"] for error in said["errors"]] == [
        "The feed answered 404.",
        "What was fetched is not a feed.",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "url is missing."),
        ({"url": "BASE/none"}, "The feed answered 404."),
        ({"url": "BASE/page"}, "What was fetched is not a feed."),
        ({"url": "file:///etc/passwd"}, "Only http and https URLs are fetched."),
        ({"url": "/etc/passwd"}, "Only http and https URLs are fetched."),
        ({"urls": [f"http://x.example/{n}" for n in range(21)]}, "More than 20 feeds at once are not collected."),
        ({"config": {"urls": "x"}}, "url must be text, and urls a list of text."),
    ],
)
@asynchronous
async def test_if_nothing_could_be_collected_the_answer_is_the_reason(given: dict[str, Any], said: str) -> None:
    assert await collected(given, page="just words") == said


@asynchronous
async def test_the_body_of_a_feed_is_never_opened_as_a_file_or_url(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text(RSS)
    async with serving(feeds()) as base:
        for body in (str(secret), f"file://{secret}", f"{base}/rss"):
            assert await collected({"url": "BASE/x"}, x=body) == "What was fetched is not a feed."


@asynchronous
async def test_entities_neither_explode_nor_read_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    thief = (
        f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{secret}">]>'
        '<rss version="2.0"><channel><item><title>t &a;</title><guid>1</guid></item></channel></rss>'
    )
    said = await collected({"url": "BASE/x"}, x=thief)
    assert "the secret" not in str(said)
    assert len(str(await collected({"url": "BASE/x"}, x=LAUGHS))) < 10_000
