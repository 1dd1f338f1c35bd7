"""`waypost list`, on every kind of target."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.operated import Captured, printed
from tests.cli.targets import LOCAL, TARGETS, on
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.cli import main


@on(*TARGETS)
def test_tools_are_listed_one_per_line(target: str, capsys: Captured) -> None:
    assert main(["list", target]) == 0

    first, *others = printed(capsys).splitlines()
    assert first.split("  ", 1)[0] == "add"
    assert "Add two numbers" in first
    assert not any("second line" in line for line in [first, *others])
    assert not any(line.startswith("secret") for line in others)


@on(*TARGETS)
def test_tools_are_listed_as_json(target: str, capsys: Captured) -> None:
    assert main(["list", target, "--json"]) == 0

    tools = json.loads(printed(capsys))
    assert tools[0]["name"] == "add"
    assert tools[0]["inputSchema"]["required"] == ["a", "b"]
    assert tools[0]["_meta"]["category"] == "Maths"


@on(*LOCAL)
def test_the_catalog_of_a_local_hub_lists_everything(target: str, capsys: Captured) -> None:
    assert main(["list", target, "--catalog"]) == 0

    shown = printed(capsys)
    for name in ("add", "secret", "greet", "docs://readme", "notes://{number}"):
        assert name in shown
    (hidden,) = [line for line in shown.splitlines() if "(hidden)" in line]
    assert "secret" in hidden


@on("server.py:hub", "URL")
def test_the_catalog_as_json_has_a_section_for_each_kind(target: str, capsys: Captured) -> None:
    assert main(["list", target, "--catalog", "--json"]) == 0

    sections = json.loads(printed(capsys))
    assert sections.keys() == {"tools", "prompts", "resources", "resource_templates"}
    assert {entry["name"] for entry in sections["tools"]} >= {"add", "refuse"}
    assert [entry["name"] for entry in sections["prompts"]] == ["greet"]
    assert {entry["uri"] for entry in sections["resources"]} == {"docs://readme", "docs://logo"}
    assert [entry["uriTemplate"] for entry in sections["resource_templates"]] == ["notes://{number}"]


@on("waypost.yaml")
def test_sections_that_a_hub_does_not_have_are_empty(target: str, capsys: Captured) -> None:
    assert main(["list", target, "--catalog", "--json"]) == 0

    sections = json.loads(printed(capsys))
    assert (sections["resources"], sections["resource_templates"]) == ([], [])
    assert [entry["name"] for entry in sections["prompts"]] == ["greet"]


def test_the_catalog_tool_of_a_hub_is_used_if_it_has_one(project: Path, capsys: Captured) -> None:
    with (project / "server.py").open("a") as file:
        file.write("\nfrom waypost import Catalog\nhub.add(Catalog, hidden=True)\n")

    assert main(["list", "server.py:hub", "--catalog", "--json"]) == 0

    tools = {entry["name"]: entry for entry in json.loads(printed(capsys))["tools"]}
    assert tools["secret"]["hidden"] is True


def test_a_hub_without_tools_lists_nothing(project: Path, capsys: Captured) -> None:
    (project / "bare.py").write_text("from waypost import Hub\nhub = Hub('bare', version='1')\n")

    assert main(["list", "bare.py:hub"]) == 0
    assert printed(capsys) == ""
    assert main(["list", "bare.py:hub", "--json"]) == 0
    assert json.loads(printed(capsys)) == []


def test_the_catalog_of_a_gateway_shows_all_items(gateway_url: str, capsys: Captured) -> None:
    assert main(["list", gateway_url, "--json"]) == 0
    assert {tool["name"] for tool in json.loads(printed(capsys))} == GATEWAY_TOOLS
    assert main(["list", gateway_url, "--catalog", "--json"]) == 0
    sections = json.loads(printed(capsys))
    assert {entry["name"] for entry in sections["tools"]} == GATEWAY_TOOLS
    assert [(item["id"], item["kind"]) for item in sections["items"]] == [
        ("add", "capability"),
        ("prompt:greet", "prompt"),
    ]
    assert main(["list", gateway_url, "--catalog"]) == 0
    assert re.search(r"^items +add +Add two numbers$", printed(capsys), re.MULTILINE)


def test_the_catalog_of_a_local_file_shows_tools_that_its_gateway_does_not_list(
    project: Path, capsys: Captured
) -> None:
    config = project / "waypost.yaml"
    config.write_text(config.read_text().replace("surface: full", "surface: gateway"))

    assert main(["list", "waypost.yaml", "--catalog", "--json"]) == 0
    assert {entry["name"] for entry in json.loads(printed(capsys))["tools"]} >= {"add", *GATEWAY_TOOLS}
