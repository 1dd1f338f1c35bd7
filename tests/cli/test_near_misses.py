"""Suggestions for commands that are nearly right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed
from waypost.cli import main


def test_the_file_in_the_current_directory_is_listed_by_default(project: Path, capsys: Captured) -> None:
    assert main(["list"]) == 0
    assert printed(capsys).startswith("add")


@pytest.mark.parametrize("command", ["list", "serve", "check", "store check"])
def test_a_missing_file_suggests_init(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 1

    said = capsys.readouterr()
    expected = f"waypost.yaml:1: there is no such file in {tmp_path}; run `waypost init`, or name another [CFG001]\n"
    assert said.out + said.err == expected


def test_an_address_without_a_scheme_suggests_the_url(capsys: Captured) -> None:
    assert main(["list", "127.0.0.1:8420"]) == 2
    assert complaint(capsys) == "waypost: 127.0.0.1:8420 is not a target; use http://127.0.0.1:8420."


@pytest.mark.parametrize("target", ["server.py", "server.py:hub"])
def test_python_is_not_checked_as_a_configuration(target: str, project: Path, capsys: Captured) -> None:
    assert main(["check", target]) == 2
    assert complaint(capsys) == (
        f"waypost: {target} is Python; `waypost check` is for configuration files such as waypost.yaml."
    )


def test_a_misspelt_tool_gets_a_suggestion(project: Path, url: str, capsys: Captured) -> None:
    for target in ("server.py:hub", "waypost.yaml", url):
        assert main(["call", target, "ad"]) == 1
        assert complaint(capsys) == 'waypost: Unknown tool: ad; did you mean "add"?'
    assert main(["call", "server.py:hub", "skill:nothing_like_it"]) == 1
    assert complaint(capsys) == "waypost: Unknown skill: nothing_like_it"


def test_listing_a_gateway_names_the_number_of_its_items(gateway_url: str, capsys: Captured) -> None:
    assert main(["list", gateway_url]) == 0

    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 7
    found = int(said.err.split()[2])
    assert said.err == f"... and {found} items behind the gateway; see `waypost search {gateway_url} ''`\n"
    assert main(["search", gateway_url, ""]) == 0
    assert len(printed(capsys).splitlines()) == found


def test_a_query_needs_no_quotes_and_surplus_arguments_name_their_command(gateway_url: str, capsys: Captured) -> None:
    assert main(["search", gateway_url, "add", "two", "numbers", "--limit", "1", "--json"]) == 0
    spread = printed(capsys)
    assert main(["search", gateway_url, "add two numbers", "--limit", "1", "--json"]) == 0
    assert printed(capsys) == spread
    with pytest.raises(SystemExit):
        main(["skills", "list", "waypost.yaml"])
    assert complaint(capsys) == (
        "waypost skills list: unrecognized arguments: waypost.yaml; see `waypost skills list --help`"
    )
