"""`waypost skills`: the executable skills of a running hub."""

from __future__ import annotations

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.operated import served as served
from waypost.cli import main

pytestmark = pytest.mark.usefixtures("served")


def said(capsys: Captured, *arguments: str) -> str:
    """What a command prints that ends well."""
    assert main(["skills", *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_skill_is_created_loaded_changed_and_taken_out(capsys: Captured) -> None:
    assert said(capsys, "create", "greet") == "The skill greet is created: greet.py.\n"
    assert said(capsys, "load", "greet.py") == "The skill greet is loaded (version 1).\n"
    assert said(capsys, "reload", "greet") == "The skill greet is reloaded (version 2).\n"
    assert said(capsys, "list").splitlines()[1].split() == ["greet", "dynamic", "serving", "2"]
    assert said(capsys, "rollback", "greet") == "The skill greet is rolled back (version 1).\n"
    assert main(["skills", "list", "--json"]) == 0
    assert [(skill["name"], skill["version"]) for skill in printed_json(capsys)] == [("greet", "1")]
    assert said(capsys, "unload", "greet") == "The skill greet is unloaded.\n"
    assert said(capsys, "list") == "none\n"


def test_a_refusal_is_one_sentence(capsys: Captured) -> None:
    assert main(["skills", "load", "twice.py", "--json"]) == 0
    assert printed_json(capsys)["name"] == "twice"
    assert main(["skills", "load", "twice.py"]) == 1
    assert complaint(capsys) == "waypost: The skill twice is loaded already in this version."


def test_a_name_with_a_slash_in_it_is_one_name(capsys: Captured) -> None:
    assert said(capsys, "create", "../x?y") == "The skill ../x?y is created: ../x?y.py.\n"


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_what_cannot_be_a_name_is_not_sent(name: str, capsys: Captured) -> None:
    assert main(["skills", "unload", name]) == 1
    assert complaint(capsys) == f"waypost: {name!r} is not a name."
