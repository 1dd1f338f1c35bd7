"""`waypost prompts`: the prompts of a running hub."""

from __future__ import annotations

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.published import mailer as mailer
from waypost.cli import main
from waypost.worker import Worker

pytestmark = pytest.mark.usefixtures("mailer")


def test_prompts_are_listed_with_their_owner(capsys: Captured) -> None:
    assert main(["prompts", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "ARGUMENTS", "FROM", "DESCRIPTION"]
    assert [" ".join(row.split()) for row in rows] == [
        "send-email worker:mailer Write an email.",
        "summarise text, words hub Summarise a text.",
    ]
    assert main(["prompts", "list", "--json"]) == 0
    assert [one["name"] for one in printed_json(capsys)] == ["send-email", "summarise"]


def test_a_prompt_is_shown_with_its_arguments(capsys: Captured) -> None:
    assert main(["prompts", "show", "summarise"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "summarise: Summarise a text.",
        "from hub",
        "  text (required): What to summarise",
        "  words (optional)",
    ]
    assert main(["prompts", "show", "send-email", "--json"]) == 0
    assert printed_json(capsys)["owner"] == "worker:mailer"


def test_an_unknown_prompt_is_an_error(capsys: Captured) -> None:
    assert main(["prompts", "show", "nothing"]) == 1
    assert complaint(capsys) == "waypost: Unknown prompt: nothing"
    assert main(["prompts", "show", "sumarise"]) == 1
    assert complaint(capsys) == 'waypost: Unknown prompt: sumarise; did you mean "summarise"?'


def test_a_published_prompt_is_removed(mailer: Worker, capsys: Captured) -> None:
    given = {"name": "draft", "description": "Write a draft.", "function_id": "mail::write"}
    for options, said in (([], "The prompt draft is removed.\n"), (["--json"], '"removed": true')):
        mailer.trigger("prompts::register", given).result(60)
        assert main(["prompts", "remove", "draft", *options]) == 0
        assert said in capsys.readouterr().out
    assert main(["prompts", "remove", "draft"]) == 1
    assert complaint(capsys) == "waypost: Unknown prompt: draft"
    assert main(["prompts", "remove", "summarise"]) == 1
    assert complaint(capsys) == "waypost: The prompt summarise was not published; remove it where it is defined."
