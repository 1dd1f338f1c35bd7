"""`waypost skills`: the executable skills of a running hub."""

from __future__ import annotations

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.operated import served as served
from waypost.cli import main

pytestmark = pytest.mark.usefixtures("served")


def output_of(capsys: Captured, *arguments: str) -> str:
    """The output of a successful command."""
    assert main(["skills", *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_skill_is_created_loaded_reloaded_rolled_back_and_unloaded(capsys: Captured) -> None:
    assert output_of(capsys, "create", "greet") == "The skill greet is created: greet.py.\n"
    assert output_of(capsys, "load", "greet.py") == "The skill greet is loaded (version 1).\n"
    assert output_of(capsys, "reload", "greet") == "The skill greet is reloaded (version 2).\n"
    assert output_of(capsys, "list").splitlines()[1].split() == ["greet", "dynamic", "serving", "2"]
    assert output_of(capsys, "rollback", "greet") == "The skill greet is rolled back (version 1).\n"
    assert main(["skills", "list", "--json"]) == 0
    assert [(skill["name"], skill["version"]) for skill in printed_json(capsys)] == [("greet", "1")]
    assert output_of(capsys, "unload", "greet") == "The skill greet is unloaded.\n"
    assert output_of(capsys, "list") == "none\n"


def test_a_refusal_is_a_one_line_error(capsys: Captured) -> None:
    assert main(["skills", "load", "twice.py", "--json"]) == 0
    assert printed_json(capsys)["name"] == "twice"
    assert main(["skills", "load", "twice.py"]) == 1
    assert complaint(capsys) == "waypost: The skill twice is loaded already in this version."


def test_a_name_may_contain_a_slash(capsys: Captured) -> None:
    assert output_of(capsys, "create", "../x?y") == "The skill ../x?y is created: ../x?y.py.\n"


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_an_invalid_name_is_not_sent(name: str, capsys: Captured) -> None:
    assert main(["skills", "unload", name]) == 1
    assert complaint(capsys) == f"waypost: {name!r} is not a name."
