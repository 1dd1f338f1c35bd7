from pathlib import Path

import pytest

from tests.config.conftest import Folder


def prompt(folder: Folder, template: str, *arguments: str) -> list[tuple[str, str]]:
    declared = ", ".join(f"{{name: {name}}}" for name in arguments)
    text = f"prompts:\n  p:\n    arguments: [{declared}]\n    template: {template!r}\n"
    return [(found.code, found.message) for found in folder.check(text)]


@pytest.mark.parametrize(
    "template",
    [
        "{{ a }}",
        "{% for x in range(3) %}{{ x }}{{ loop.index }}{% endfor %}{{ a }}",
        "{% set y = a %}{{ y }}",
        "{% macro m(z) %}{{ z }}{{ caller() }}{% endmacro %}{{ m(a) }}",
        "{{ a.b | upper }} {{ a is defined }}",
        "{% with q = a %}{{ q }}{% endwith %}",
        "{{ 9 ** 9 ** 9 ** 9 if a }}",
        "{{ {'_id': a}._id }}{{ a[0] }}{{ a['__x'] }}",
        "{% for x in range(-1, 99999) %}{{ range(9 ** 9) if a }}{{ range(a, 2) }}{{ range(0, 9, 0) }}{% endfor %}",
        "{% for a in a %}{{ a }}{% endfor %}",
    ],
)
def test_a_template_that_uses_its_arguments_is_valid(folder: Folder, template: str) -> None:
    assert prompt(folder, template, "a") == []


def test_an_argument_may_have_the_name_of_something_jinja_defines(folder: Folder) -> None:
    assert prompt(folder, "{{ range }} {{ loop }}", "range", "loop") == []


@pytest.mark.parametrize(
    "template",
    [
        "{{ a",
        "{% if %}",
        "{% nope %}",
        "{{ a | nope }}",
        "{{ a is nope }}",
        "{% include 'x' %}{{ a }}",
        "{% extends 'x' %}",
        "{% import 'x' as y %}",
        "{{ a.__class__ }}",
        "{{ a['__class__'] }}",
        "{% for x in range(-1, 100000) %}{{ a }}{% endfor %}",
        "{{ range(" + "9" * 30 + ") | first }}{{ a }}",
        "{{ " + "9" * 5000 + " }}",
        "{{ " + "(" * 5000 + " }}",
        "{{ " + "a+" * 5000 + "a }}",
    ],
    ids=lambda template: template[:12],
)
def test_a_template_that_cannot_be_rendered_is_reported(folder: Folder, template: str) -> None:
    ((code, _),) = prompt(folder, template, "a")
    assert code == "CFG050"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("prompts:\n  p:\n    template: |\n      one\n      {{ a | nope }}\n", 5),
        ("prompts:\n  p:\n    template: '{{ a'\n", 3),
        ("prompts:\n  p:\n    template:\n      '{{ a'\n", 4),
    ],
)
def test_a_template_error_names_its_own_line(folder: Folder, text: str, line: int) -> None:
    assert folder.only(text).line == line


def test_a_variable_that_is_not_an_argument_is_a_warning(folder: Folder) -> None:
    loaded = folder.load("prompts: {p: {template: '{{ a }} {{ b }}', arguments: [{name: a}]}}\n")
    (warning,) = loaded.warnings
    assert (warning.code, warning.severity) == ("CFG051", "warning")
    assert "`b`" in warning.message


def test_an_argument_that_is_not_used_is_a_warning_at_its_line(folder: Folder) -> None:
    loaded = folder.load("prompts:\n  p:\n    template: hi\n    arguments:\n      - name: a\n")
    assert [(each.code, each.line) for each in loaded.warnings] == [("CFG053", 5)]


def test_an_argument_declared_twice_is_an_error(folder: Folder) -> None:
    found = folder.only("prompts:\n  p:\n    template: '{{ a }}'\n    arguments:\n      - name: a\n      - name: a\n")
    assert (found.code, found.line, found.key) == ("CFG052", 6, "prompts.p.arguments[1].name")


def test_jinja_and_watchfiles_are_imported_only_when_needed() -> None:
    import subprocess
    import sys

    program = (
        "import pathlib, sys, waypost.config; waypost.config.check(pathlib.Path('x'));"
        "print('jinja2' in sys.modules, 'watchfiles' in sys.modules)"
    )
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": source},
        timeout=90,
    )
    assert done.stdout.split() == ["False", "False"]
