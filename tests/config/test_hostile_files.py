from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.config.test_loader import EVERYTHING
from waypost.config import check, load
from waypost.errors import ConfigError

FRAGMENTS = [
    *"[]{}:,-#&*!|>%@`'\"\n\t\0 ",
    *("${", "${A}", "${A:-", "{{ x", "{% if", "&a", "*a", "!!int ", "<<: ", "---\n", "\r\n", "\x85", "\ud7ff", "é"),
    *(
        "include: ['*.yaml']\n",
        "toolkits: [./x.py]\n",
        "null",
        "1e999",
        "0x",
        "~",
        ".inf",
        "9" * 500,
        '"\\0"',
        '"\\uD800"',
    ),
]
budget = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "waypost.yaml"


def survives(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with suppress(ConfigError):
        load(file, {"A": "5"})
    for found in check(file, {"A": "5"}):
        assert "\n" not in str(found)
        assert found.line >= 1


@budget
@given(content=st.binary(max_size=200))
def test_any_bytes_load_or_are_refused(file: Path, content: bytes) -> None:
    survives(file, content)


@budget
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(EVERYTHING)), st.integers(0, 12), st.sampled_from(FRAGMENTS)),
        min_size=1,
        max_size=4,
    )
)
def test_any_mutation_of_a_valid_file_loads_or_is_refused(file: Path, edits: list[tuple[int, int, str]]) -> None:
    text = EVERYTHING
    for start, length, fragment in edits:
        text = text[:start] + fragment + text[start + length :]
    survives(file, text.encode("utf-8", "surrogatepass"))


@budget
@given(
    template=st.lists(
        st.sampled_from(["{{", "}}", "{%", "%}", " x ", "for", "in", "|", "(", "if", "set", "=", "9" * 30, "**"])
    ),
)
def test_any_template_loads_or_is_refused(file: Path, template: list[str]) -> None:
    survives(file, f"prompts: {{p: {{template: '{''.join(template)}'}}}}".encode())
