from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.config.conftest import Folder
from tests.config.reference import ELSEWHERE, fill_page, list_settings
from waypost.config import CODES

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
ROWS = {match[1]: match[0] for match in re.finditer(r"^\| `([^`]+)` \|.*$", PAGE, re.MULTILINE)}


def test_the_tables_of_settings_match_the_models() -> None:
    # To rewrite them: python -m tests.config.reference docs/configuration.md
    assert fill_page(PAGE) == PAGE


@pytest.mark.parametrize("name", [setting.name for setting in list_settings()])
def test_every_setting_is_on_the_page(name: str) -> None:
    assert name in ROWS


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_section_that_is_described_on_another_page_links_to_it(name: str) -> None:
    assert re.search(r"\]\((workflow-\w+|upstreams)\.md#", ROWS[name])


# Those of workflows have a separate page: tests/workflows/checks/test_page.py.
@pytest.mark.parametrize("code", [code for code in CODES if not code.startswith("WF")])
def test_every_code_is_on_the_page_with_its_meaning(code: str) -> None:
    assert ROWS[code] == f"| `{code}` | {CODES[code]} |"


def test_every_code_is_used_and_every_used_code_is_declared() -> None:
    source = Path(__file__).parents[2] / "src" / "waypost"
    modules = [path for path in source.rglob("*.py") if path != source / "config" / "findings.py"]
    used = {code for path in modules for code in re.findall(r"CFG\d{3}|WF\d{3}", path.read_text())}
    assert used == set(CODES)


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_load(folder: Folder, example: str) -> None:
    for name in ("tools.py", "admin.py", "base.yaml", "team/a.yaml"):
        folder.write(name, "")
    assert folder.check(example) == []
