"""The docs site builds without a warning, has every page, and its pages begin plainly, with a picture."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import mkdocs
import pytest
import yaml

import waypost
from tests.docs.pages import DOCS, PAGES, ROOT, name
from tests.docs.test_docs import ERRORS, FENCED, LINK


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name functions of its extensions."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE: Final = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
TABS: Final[dict[str, Any]] = {tab: pages for entry in SITE["nav"] for tab, pages in entry.items()}
MAX_WORDS: Final = 30
FIRST_SCREEN_LINES: Final = 25


def files(pages: list[Any]) -> list[str]:
    """The files of a tab."""
    return [page if isinstance(page, str) else next(iter(page.values())) for page in pages]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder


@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = set[str]()
    for path in site.rglob("*.html"):
        loaded |= set(re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)", path.read_text()))
    assert loaded == set(), "a page loads something from another machine"
    assert "/api/v1/keys" in (site / "http-api.html").read_text()
    assert 'id="waypost.Hub.tool"' in (site / "python-api.html").read_text()


QUESTIONS: Final = {
    "connect claude desktop": "connecting.html",
    "human approval": "workflows.html",
    "require an api key": "authentication.html",
    "run behind a tls proxy": "deployment.html",
    "test my own tool": "testing.html",
}
"""What a newcomer would type into the search of the site, and the page that answers it."""
SEARCH: Final = """
const [engine, file, ...queries] = process.argv.slice(1);
const lunr = require(engine);
const docs = JSON.parse(require("fs").readFileSync(file)).docs;
const index = lunr(function () {
  this.ref("location");
  this.field("title", {boost: 1000});
  this.field("text");
  for (const doc of docs) this.add(doc, {boost: doc.boost || 1});
});
const found = query => [...new Set(index.search(query).map(hit => hit.ref.split("#")[0]))].slice(0, 3);
console.log(JSON.stringify(queries.map(found)));
"""
"""Searches with the engine of the site, and prints the first three pages for each query."""


@pytest.mark.timeout(300)
def test_the_search_of_the_site_answers_what_a_newcomer_asks(site: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is missing, which the search engine of the site needs")
    (engine,) = Path(mkdocs.__file__).parent.rglob("search/lunr.js")
    index = site / "search" / "search_index.json"
    command = [node, "-e", SEARCH, str(engine), str(index), *QUESTIONS]
    answers = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    missed = {ask: found for (ask, page), found in zip(QUESTIONS.items(), answers, strict=True) if page not in found}
    assert missed == {}


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [file for pages in TABS.values() for file in files(pages)]
    assert sorted(listed) == sorted(set(listed))
    pages = [path.relative_to(DOCS).as_posix() for path in (*DOCS.glob("*.md"), *DOCS.glob("decisions/*.md"))]
    assert sorted(file for file in listed if not file.startswith("project/")) == sorted(pages)


def test_every_page_for_readers_is_linked_from_the_start_page() -> None:
    linked = {target.partition("#")[0] for target in LINK.findall((DOCS / "index.md").read_text())}
    wanted = {file for tab, pages in TABS.items() if tab != "Project" for file in files(pages)} - {"index.md"}
    assert wanted - linked == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


FIGURES: Final = {
    "`tools/call` a second": ("http_calls", "2026-07-28, 16 connections", "waypost", "fastmcp"),
    "the same through a gateway": ("gateway_hop", "16 connections", "waypost gateway", "fastmcp proxy"),
    "durable steps a second": ("workflows", "SQLite FULL, 64 in flight", "waypost", None),
    "start to first answer": ("startup", "start to first answer", "waypost", "fastmcp"),
}


@pytest.mark.parametrize("row", FIGURES)
def test_a_figure_of_the_readme_was_measured(row: str) -> None:
    scenario, case, *contenders = FIGURES[row]
    measured = json.loads((ROOT / "benchmarks" / "results" / "latest.json").read_text())["scenarios"][scenario]["rows"]
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {row}"))
    for cell, contender in zip(line.split(" | ")[1:3], contenders, strict=True):
        if contender is None:
            continue
        (found,) = (each for each in measured if (each["case"], each["contender"]) == (case, contender))
        shown = float(cell.replace(",", "").removesuffix(" s")) * (1000 if cell.endswith(" s") else 1)
        assert shown == pytest.approx(found["median"], rel=0.05), "write the figure of benchmarks/results/latest.json"


@pytest.mark.parametrize(
    "file", [file for tab in ("Start", "Guides", "Operations", "Coming from") for file in files(TABS[tab])]
)
def test_a_guide_has_a_picture(file: str) -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\((images/[\w-]+\.svg)\)", (DOCS / file).read_text())
    assert pictures
    assert [target for _, target in pictures if not (DOCS / target).exists()] == []


def first_screen(text: str) -> list[str]:
    """The sentences of the prose in the first lines of a page; tables, code and headings are none."""
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", FENCED.sub("", text)).replace("**", "")
    lines = prose.splitlines()[:FIRST_SCREEN_LINES]
    paragraphs = "\n".join("" if line.startswith(("#", "|", "<")) else line for line in lines).split("\n\n")
    blocks = [
        part for paragraph in paragraphs for part in re.split(r"^\s*(?:[-*]|\d+\.) ", paragraph, flags=re.MULTILINE)
    ]
    return [
        sentence for block in blocks for sentence in re.split(r"(?<=[.!?])\s+", " ".join(block.split())) if sentence
    ]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_first_screen_has_no_long_sentence(path: Path) -> None:
    if path.name == "CHANGELOG.md":
        return
    assert [found for found in first_screen(path.read_text()) if len(found.split()) > MAX_WORDS] == []


def test_a_long_sentence_is_noticed() -> None:
    long = " ".join(["word"] * 31)
    assert first_screen(f"# A page\n\nShort. {long}.\n") == ["Short.", f"{long}."]
    assert first_screen(f"# A page\n\n```\n{long}\n```\n\n| {long} |\n") == []


def test_the_diagrams_are_those_of_their_source() -> None:
    drawings: dict[Path, str] = runpy.run_path(str(ROOT / ".ci" / "diagrams.py"))["drawings"]()
    assert [file.name for file, text in drawings.items() if not file.exists() or file.read_text() != text] == []
    shown = {target for path in PAGES for target in re.findall(r"images/([\w-]+\.svg)", path.read_text())}
    assert {file.name for file in drawings} <= shown, "draw no diagram that no page shows"


def test_the_pictures_of_the_console_are_small_and_shown() -> None:
    files = sorted((DOCS / "images").glob("console-*.png"))
    shown = set(re.findall(r"images/(console-[\w-]+\.png)", (DOCS / "console.md").read_text()))
    assert {file.name for file in files} == shown
    assert [file.name for file in files if file.stat().st_size > 200_000] == []


def test_the_python_api_has_every_public_name_that_is_no_error() -> None:
    documented = set(re.findall(r"^::: waypost\.(\w+)$", (DOCS / "python-api.md").read_text(), re.MULTILINE))
    assert set(waypost.__all__) - set(ERRORS) - {"__version__"} <= documented
