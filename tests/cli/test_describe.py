"""`waypost describe`, on every kind of target."""

from __future__ import annotations

import json

import pytest

from tests.cli.operated import Captured, complaint, printed
from tests.cli.targets import TARGETS, on
from waypost.cli import main


def test_an_item_of_a_gateway_is_described_with_its_link(gateway_url: str, capsys: Captured) -> None:
    assert main(["describe", gateway_url, "add"]) == 0

    shown = json.loads(printed(capsys))
    assert (shown["id"], shown["kind"]) == ("add", "capability")
    assert shown["links"][0]["input_schema"]["required"] == ["a", "b"]


@on("server.py:hub", "GATEWAY")
def test_an_id_from_a_search_can_be_described(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "prompt:greet"]) == 0
    assert json.loads(printed(capsys))["links"][0]["method"] == "prompts/get"


@on("server.py:hub", "GATEWAY")
def test_a_misspelt_id_is_an_error_with_a_suggestion(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "prompt:gret"]) == 1
    assert complaint(capsys) == "waypost: There is nothing called 'prompt:gret'. Did you mean prompt:greet?"


@on(*TARGETS)
def test_a_tool_is_described_with_its_schema(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "add"]) == 0

    shown = json.loads(printed(capsys))
    assert shown["name"] == "add"
    assert shown["inputSchema"]["properties"].keys() == {"a", "b"}


@on("server.py:hub", "URL")
@pytest.mark.parametrize(
    ("name", "member", "value"),
    [
        ("greet", "description", "Compose a greeting."),
        ("docs://readme", "mimeType", "text/markdown"),
        ("notes://{number}", "name", "note"),
    ],
)
def test_prompts_resources_and_templates_are_described_too(
    target: str, name: str, member: str, value: str, capsys: Captured
) -> None:
    assert main(["describe", target, name, "--json"]) == 0
    assert json.loads(printed(capsys))[member] == value


@on("server.py:hub", "URL", "waypost.yaml")
def test_describing_an_unknown_name_is_an_error(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "nothing"]) == 1
    assert "nothing called 'nothing'" in complaint(capsys)
