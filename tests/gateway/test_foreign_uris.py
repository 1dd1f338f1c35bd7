"""URI templates of upstreams: matching any of them is fast and never raises."""

from __future__ import annotations

import time

import pytest

from waypost import DefinitionError
from waypost.imports.rows import ForeignTemplate


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("notes://day/{day}", "notes://day/1", True),
        ("notes://day/{day}", "notes://day/1/2", False),
        ("notes://day/{day}", "notes://day/", False),
        ("notes://day/{day}", "other://day/1", False),
        ("file:///{+path}", "file:///a/b?c#d", True),
        ("file:///{+path}.txt", "file:///a/b.txt", True),
        ("file:///{+path}.txt", "file:///a/b.md", False),
        ("a://{x}/{y}/end", "a://1/2/end", True),
        ("a://{x}/{y}/end", "a://1/end", False),
        ("a://find{?q,limit}", "a://find?q=1&limit=2", True),
        ("a://find{?q,limit}", "a://find", True),
        ("a://{x}{y}", "a://12", False),
        ("a://root{/path*}", "a://root/b/c", True),
        ("a://plain", "a://plain", True),
        ("a://plain", "a://plainer", False),
        ("a://{x}x", "a://x", False),
    ],
)
def test_a_template_matches_only_its_expansions(template: str, uri: str, fits: bool) -> None:
    assert ForeignTemplate(template).match(uri) == ({"uri": uri} if fits else None)


@pytest.mark.parametrize("template", ["{+uri}", "{scheme}://x", "/{path}", "a:" + "{x}/" * 33, "a:" + "x" * 9000])
def test_a_template_that_matches_every_uri_or_is_too_long_is_refused(template: str) -> None:
    with pytest.raises(DefinitionError):
        ForeignTemplate(template)


def test_no_template_makes_matching_slow() -> None:
    template = ForeignTemplate("a:" + "{+x}a" * 32)
    began = time.thread_time()
    template.match("a:" + "a" * 8000 + "b")
    assert time.thread_time() - began < 2
