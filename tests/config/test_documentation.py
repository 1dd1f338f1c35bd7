from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, Struct

from tests.config.conftest import Folder
from waypost.config import CODES, Config, checks

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
ROWS = {match[1]: match[0] for match in re.finditer(r"^\| `([^`]+)` \|.*$", PAGE, re.MULTILINE)}

ELSEWHERE = {
    "connections": "workflow-executors.md",
    "capabilities": "workflow-reference.md",
    "workflows": "workflow-reference.md",
    "proxy.expose[].reliability": "workflow-executors.md",
}
"""What stands in pages of its own, model by model, which tests/docs/test_workflow_pages.py holds."""


def settings(model: type[Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(model):
        name = prefix + field.encode_name
        yield name, field.default
        if name in ELSEWHERE:
            continue
        if (entry := checks.entry_types(field.type)) and (inner := checks.find_model(entry[1], {})):
            yield from settings(inner, f"{name}.<name>.")
        elif (item := checks.item_type(field.type)) is not None and (inner := checks.find_model(item, {})):
            yield from settings(inner, f"{name}[].")
        elif inner := checks.find_model(field.type, {}):
            yield from settings(inner, f"{name}.")


EVERY_SETTING = [(name, default) for name, default in settings(Config) if not name.endswith(".<name>")]


@pytest.mark.parametrize(("name", "default"), EVERY_SETTING, ids=[name for name, _ in EVERY_SETTING])
def test_every_setting_is_on_the_page_with_its_default(name: str, default: Any) -> None:
    assert name in ROWS
    if default not in (NODEFAULT, None):
        shown = str(default).lower() if isinstance(default, bool) else str(default) or '""'
        assert f"| `{shown}` |" in ROWS[name]


def test_the_page_names_no_setting_that_does_not_exist() -> None:
    documented = {name for name in ROWS if not name.startswith("CFG")}
    assert documented == {name for name, _ in EVERY_SETTING}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_section_that_is_described_elsewhere_says_where(name: str) -> None:
    assert f"]({ELSEWHERE[name]}#" in ROWS[name]


# Those of workflows have a page of their own: tests/workflows/checks/test_page.py.
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
