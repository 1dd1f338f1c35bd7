"""Pages with their data and actions, without a browser."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import operated_hub
from tests.api.releasing import releasing
from tests.api.test_upstreams import importing
from tests.console.conftest import browsing
from tests.console.markup import EVIL
from tests.gateway.importers import Turncoat, tool
from tests.protocol.conftest import asynchronous
from waypost.console.pages.approvals import MAX_CARDS
from waypost.console.pages.documents import MAX_BYTES, MAX_CHARACTERS, render_markdown
from waypost.console.pages.keys import MAX_ROWS
from waypost.console.pages.upstreams import group_by_field, place_side_by_side
from waypost.console.rendering import show_sentence


def test_lines_that_replace_each_other_stand_side_by_side() -> None:
    assert place_side_by_side(["-a: 1", "+a: 2", "+b: 3", " c: 4", "-d: 5"]) == [
        ("a: 1", "a: 2", "changed"),
        ("", "b: 3", "added"),
        ("c: 4", "c: 4", "same"),
        ("d: 5", "", "removed"),
    ]
    assert place_side_by_side([]) == []


def test_a_difference_names_each_field_once() -> None:
    difference = ["-description: Read: a", "+description: Read: b", " inputSchema: {", '+inputSchema:   "x": 1']
    assert group_by_field(difference) == [
        ("description", [("Read: a", "Read: b", "changed")]),
        ("inputSchema", [("{", "{", "same"), ("", '  "x": 1', "added")]),
    ]


@asynchronous
async def test_an_upstream_with_a_thousand_tools_and_changes_fits_a_page(tmp_path: Path) -> None:
    many = [tool(f"tool-{number}-{EVIL}"[:60]) for number in range(1000)]
    server = Turncoat(tmp_path, *many)
    async with importing(tmp_path, server) as (operator, hub):
        server.offer(*[{**one, "description": f"{EVIL} " * 50} for one in many])
        await operator.fetch("POST", "/api/v1/upstreams/turncoat/restart")
        async with browsing(hub) as person:
            html = await person.read("upstreams")
            assert (len(html) <= 50_000, EVIL in html, "988 more definitions" in html) == (True, False, True)


@asynchronous
async def test_any_number_of_approvals_and_keys_fits_a_page() -> None:
    async with releasing() as releases:
        for number in range(MAX_CARDS + 3):
            await releases.asked(service=f"{number}-{EVIL * 100}")
        for number in range(MAX_ROWS + 5):
            await releases.hub.keys.create(f"key-{number}", roles=["agent"])
        async with browsing(releases.hub) as person:
            waiting = [one["id"] for one in (await releases.fetch("GET", "/api/v1/approvals"))["approvals"]]
            place, shown = "approvals", list[str]()
            while place:
                html = await person.read(place)
                on_page = re.findall(r'data-row data-id="([^"]+)"', html)
                assert (len(html.encode()) <= 50_000, 1 <= len(on_page) <= MAX_CARDS) == (True, True)
                assert f"{MAX_CARDS + 3} transitions wait for a decision" in html
                shown += on_page
                following = re.search(r'rel="next" href="/console/([^"]+)"', html)
                place = "" if following is None else unescape(following[1])
            assert shown == waiting
            html = await person.read("keys")
            assert (len(html) <= 50_000, html.count("data-row")) == (True, MAX_ROWS)
            assert re.findall(r'data-row data-id="([^"]+)"', await person.read("keys?q=KEY-44")) == ["key-44"]
            assert "No key fits" in await person.read("keys?q=nothing")


def test_a_sentence_shows_commands_as_code_and_everything_else_as_text() -> None:
    assert show_sentence("Run `a <b>` now.") == "Run <code>a &lt;b&gt;</code> now."
    assert show_sentence(f"One ` {EVIL}") == "One ` &lt;img src=x onerror=alert(1)&gt;"


@asynchronous
async def test_the_audit_page_keeps_a_filter_that_is_wrong_out_of_the_store() -> None:
    async with browsing(operated_hub(rules=())) as person:
        assert "is not a time such as" in await person.read("audit?after=yesterday", status=400)
        assert "Invalid cursor" in await person.read("audit?before=x", status=400)
        assert "Invalid query" in await person.read("audit?decision=perhaps", status=400)
        html = await person.act("audit", "verify")
        assert 'role="status"' in html
        assert EVIL not in await person.read("audit?principal=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E")


PAYLOADS = (
    EVIL,
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    '[x](https://a.example/"onmouseover="alert(1))',
    "![x](https://a.example/x.png)",
    '[<img src=x onerror=alert(1)>](https://a.example "t")',
    "`<b>`**<b>***<b>*",
    "# <svg/onload=alert(1)>",
    "> <iframe src=//a.example>",
    "```html\n<script>alert(1)</script>\n```",
    "1. <math><mtext></form><form>",
    "<!-- <p> --><style>*{}</style>&lt;script&gt;",
)
TAG = re.compile(
    r"</?(?:p|ul|ol|li|pre|h[3-6]|blockquote|code|strong|em|table|tbody|tr|th|td)>|<pre tabindex=\"0\">"
    r"|<a href=\"https?://[^\"<>]*\" rel=\"noopener noreferrer nofollow\">|</a>"
)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_markdown_has_only_the_tags_of_the_console(payload: str) -> None:
    for text in (
        payload,
        f"text {payload} text",
        f"- {payload}",
        f"# {payload}",
        f"> {payload}",
        f"**{payload}**",
        f"| {payload} |\n|---|\n| {payload} |",
    ):
        rest = TAG.sub("", render_markdown(text))
        assert not re.search(r"[<>]", rest), rest


def test_markdown_becomes_headings_lists_code_and_links() -> None:
    text = "# A\n\nOne *two*\n**three**.\n\n- a\n  b\n- c\n\n1. d\n\n~~~\nx < y\n~~~\n[h](https://h.example/?a=1&b=2) [s](iii://s)"
    assert render_markdown(text) == (
        "<h3>A</h3>\n<p>One <em>two</em> <strong>three</strong>.</p>\n<ul><li>a b</li><li>c</li></ul>\n"
        '<ol><li>d</li></ol>\n<pre tabindex="0">x &lt; y</pre>\n'
        '<p><a href="https://h.example/?a=1&amp;b=2" rel="noopener noreferrer nofollow">h</a> s <code>iii://s</code></p>'
    )
    assert render_markdown("Of\n| a | `b` |\n|---|:-:|\n| <i> | 2 |\nend") == (
        "<p>Of</p>\n<table><tbody><tr><th>a</th><th><code>b</code></th></tr><tr><td>&lt;i&gt;</td><td>2</td></tr>"
        "</tbody></table>\n<p>end</p>"
    )
    assert "10 more characters" in render_markdown("x" * (MAX_CHARACTERS + 10))
    for hostile in (
        "*" * 50_000,
        "[" * 50_000,
        "`" * 50_001,
        "**a" * 20_000,
        "![](" * 20_000,
        "|" * 50_000,
        "|-" * 20_000,
    ):
        assert len(render_markdown(hostile)) < 200_000
    for dense in ('"', "> a\n", "|\n|", "||\n", "- a\n", "\u4e2d", "a\n\n"):
        assert len(render_markdown(dense * MAX_BYTES).encode()) < MAX_BYTES + 100, "a page has room for it"


@asynchronous
async def test_a_viewer_reads_sources_and_may_change_nothing(tmp_path: Path) -> None:
    hub = operated_hub(rules=())
    async with browsing(hub) as person:
        await person.read("documents")
        await person.act("documents", "create", id="a/b", skill=f"# {EVIL}")
        assert EVIL not in await person.read("documents?id=a/b")
        viewer = await hub.keys.create("vera", roles=["viewer"])
        await person.sign_in(viewer)
        for page in ("upstreams", "documents", "skills", "workers", "policies", "audit"):
            assert 'data-action="remove"' not in await person.read(page)
        assert "does not have the role admin" in await person.act("documents", "remove", status=403, id="a/b")
        assert "does not have the role admin" in await person.act("documents", "create", status=403, id="c", skill="d")
        assert "does not have the role operator" in await person.act("skills", "reload", status=403, id="x")
        assert "does not have the role admin" in await person.act("upstreams", "approve", status=403, id="x")


@asynchronous
async def test_entries_for_clients_are_ready_to_copy_and_name_the_hub() -> None:
    async with browsing(operated_hub(rules=())) as person:
        html = await person.read("connect?url=https://hub.example&name=team")
        for client in ("claude-code", "cursor", "vscode", "codex", "gemini", "opencode", "claude-desktop"):
            assert f'data-id="{client}"' in html
        assert "&#34;mcp-remote&#34;" in html, "Claude Desktop starts programs only"
        assert "--allow-http" not in html
        assert "--allow-http" in await person.read("connect?url=http://hub.example")
        assert "[mcp_servers.team]" in html
        assert "https://hub.example/mcp" in html
        assert 'href="cursor://anysphere.cursor-deeplink/mcp/install?name=team' in html
        assert 'href="vscode:mcp/install?' in html
        assert "is not a URL" in await person.read("connect?url=javascript:alert(1)", status=400)
        assert "Invalid query" in await person.read("connect?name=a%20b", status=400)


@asynchronous
async def test_what_the_list_of_approvals_cuts_is_approved_where_all_of_it_is_shown() -> None:
    # Quotes and tags take several times their length as HTML, so that it takes several pages.
    service = "".join(f"{number} {EVIL} \"'" for number in range(1000))
    async with releasing() as releases:
        _, small = await releases.asked(service="shop")
        run, large = await releases.asked(service=service)
        async with browsing(releases.hub) as person:
            html = await person.read("approvals")
            assert (html.count('value="approve"'), html.count('value="reject"')) == (1, 2)
            assert f'href="/console/approvals/{large}"' in html
            assert f'href="/console/approvals/{small}"' not in html

            shown, place = "", f"approvals/{large}"
            while place:
                html = await person.read(place)
                assert len(html) <= 50_000
                assert EVIL not in html
                shown += unescape(html.partition('<pre class="code flat" tabindex="0">')[2].partition("</pre>")[0])
                following = re.search(r'rel="next" href="/console/([^"]+)"', html)
                assert ('value="approve"' in html) == (following is None)
                place = "" if following is None else following[1]
            assert json.loads(shown) == {"service": service}

            digest = re.search(r'name="digest" value="([^"]+)"', html)
            assert digest is not None
            html = await person.act(f"approvals/{large}", "approve", digest=digest[1])
            assert f"Approved. {run} is in shipped" in html
            assert "does not wait any more" in html
            assert "does not wait any more" in await person.read(f"approvals/{large}", 404)
            assert "is not a number from 1 to 1" in await person.read(f"approvals/{small}?part=2", 400)
            assert 'value="approve"' in await person.read(f"approvals/{small}")


@asynchronous
async def test_what_is_approved_is_unfolded_and_fits_a_page_whatever_its_shape() -> None:
    large: list[list[Any]] = [[{"a": 1}] * 40, [[]] * 70, ['"' * 80] * 100]
    shapes = [[{"price": {"amount": [1, {"currency": "EUR"}]}}], *(rows for rows in large for _ in range(3))]
    order = {
        "initialState": "a",
        "states": {
            "a": {
                "transitions": {"go": {"target": "b", "executor": {"kind": "human", "presents": {"rows": "$.input"}}}}
            },
            "b": {"terminal": True},
        },
    }
    async with releasing(order=order) as releases:
        runs = [await releases.start("order", rows=rows) for rows in shapes]
        asked = [(await releases.submit(run, "go"))["approval"]["id"] for run in runs]
        run, approval = runs[0], asked[0]
        async with browsing(releases.hub) as person:
            html = await person.read("approvals")
            assert len(html.encode()) <= 50_000
            card = html.partition(f'data-id="{approval}"')[2].partition("</article>")[0]
            assert (card.count("<details open>"), card.count("<details")) == (6, 6)
            assert f'href="/console/approvals/{approval}"' in await person.read(f"instances/{run}")


@asynchronous
async def test_pages_of_approvals_go_on_when_what_was_shown_is_decided() -> None:
    async with releasing() as releases:
        ids = [(await releases.asked(service=f"shop-{number}"))[1] for number in range(MAX_CARDS + 1)]
        async with browsing(releases.hub) as person:
            following = re.search(r'rel="next" href="/console/([^"]+)"', await person.read("approvals"))
            assert following is not None
            second = unescape(following[1])
            for approval in ids[:MAX_CARDS]:
                await releases.fetch("POST", f"/api/v1/approvals/{approval}/reject")
            assert re.findall(r'data-row data-id="([^"]+)"', await person.read(second)) == ids[MAX_CARDS:]
            html = await person.act(second, "reject", id=ids[-1])
            assert ("Rejected." in html, "Nothing waits for approval" in html) == (True, True)
            await releases.asked(service="late")
            assert "late" in await person.read(second)
            assert "No later one waits" in await person.read("approvals?before=9")


@asynchronous
async def test_an_open_page_of_an_approval_that_is_decided_loads_itself_again_without_an_error() -> None:
    async with releasing() as releases, browsing(releases.hub) as person:
        _, approval = await releases.asked(service="shop")
        place = f"/console/approvals/{approval}"
        await person.read(f"approvals/{approval}")
        await releases.fetch("POST", f"/api/v1/approvals/{approval}/reject")
        assert (await person.visit(place)).status == 404
        again = await person.visit(place, hx_request="true")
        assert (again.status, b"does not wait any more" in again.body) == (200, True)


@asynchronous
async def test_a_person_who_approved_is_offered_only_to_reject_and_an_approver_no_page_of_others() -> None:
    pair = {
        "initialState": "a",
        "states": {
            "a": {"transitions": {"go": {"target": "b", "executor": {"kind": "human", "approvals": 2}}}},
            "b": {"terminal": True},
        },
    }
    async with releasing(pair=pair) as releases:
        run = await releases.start("pair")
        approval = (await releases.submit(run, "go"))["approval"]["id"]
        async with browsing(releases.hub, await releases.hub.keys.create("ann", roles=["approver"])) as ann:
            html = await ann.read("approvals")
            assert ('value="approve"' in html, f"instances/{run}" in html) == (True, False)
            html = await ann.act("approvals", "approve", id=approval)
            assert "1 more approval is needed" in html
            assert "You have approved it; another person has to as well." in html
            assert ('value="approve"' in html, 'value="reject"' in html) == (False, True)
        async with browsing(releases.hub) as person:
            html = await person.read("approvals")
            assert ('value="approve"' in html, f"instances/{run}" in html) == (True, True)


@asynchronous
async def test_a_viewer_sees_what_waits_and_which_role_decides_without_buttons() -> None:
    async with releasing() as releases:
        _, approval = await releases.asked(service="shop")
        async with browsing(releases.hub, await releases.hub.keys.create("vera", roles=["viewer"])) as vera:
            html = await vera.read("approvals")
            assert "1 transition waits for a decision" in html
            assert f'data-id="{approval}"' in html
            assert "The role lead decides about this" in html
            assert 'value="approve"' not in html
            assert "ship waits for the role lead" in await vera.read("")
