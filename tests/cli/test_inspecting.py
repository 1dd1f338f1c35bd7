"""`waypost list`, `search`, `describe`, `call` and `read`, on every kind of target."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.operated import Captured, complaint, printed
from tests.cli.shell import waypost
from waypost.capabilities.names import SEVEN
from waypost.cli import main

LOCAL = ["server.py:hub", "deskpackage.server:hub"]
TARGETS = [*LOCAL, "waypost.yaml", "URL", "URL/mcp"]


@pytest.fixture
def target(request: pytest.FixtureRequest, project: Path) -> str:
    """The target a test is run on; a URL is that of the served hub."""
    name = str(request.param)
    if name == "GATEWAY":
        return str(request.getfixturevalue("gateway_url"))
    if not name.startswith("URL"):
        return name
    url: str = request.getfixturevalue("url")
    return url if name == "URL/mcp" else url.removesuffix("/mcp")


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("target", names, indirect=True)


# list


@on(*TARGETS)
def test_tools_are_listed_one_a_line(target: str, capsys: Captured) -> None:
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


def test_the_catalog_tool_of_a_hub_is_asked_when_it_has_one(project: Path, capsys: Captured) -> None:
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


def test_behind_a_gateway_the_catalog_shows_everything_all_the_same(gateway_url: str, capsys: Captured) -> None:
    assert main(["list", gateway_url, "--json"]) == 0
    assert {tool["name"] for tool in json.loads(printed(capsys))} == SEVEN
    assert main(["list", gateway_url, "--catalog", "--json"]) == 0
    sections = json.loads(printed(capsys))
    assert {entry["name"] for entry in sections["tools"]} == SEVEN
    assert [(item["id"], item["kind"]) for item in sections["items"]] == [
        ("add", "capability"),
        ("prompt:greet", "prompt"),
    ]
    assert main(["list", gateway_url, "--catalog"]) == 0
    assert re.search(r"^items +add +Add two numbers$", printed(capsys), re.MULTILINE)


def test_a_file_at_hand_shows_what_its_gateway_does_not_list(project: Path, capsys: Captured) -> None:
    config = project / "waypost.yaml"
    config.write_text(config.read_text().replace("surface: full", "surface: gateway"))

    assert main(["list", "waypost.yaml", "--catalog", "--json"]) == 0
    assert {entry["name"] for entry in json.loads(printed(capsys))["tools"]} >= {"add", *SEVEN}


# search


@on(*LOCAL, "waypost.yaml", "GATEWAY")
def test_what_is_found_is_printed_the_best_first(target: str, capsys: Captured) -> None:
    assert main(["search", target, "add"]) == 0

    assert re.match(r" *\d+\.\d{3}  capability  add +Add two numbers\.?\n", printed(capsys))


@on("server.py:hub", "GATEWAY")
def test_a_search_as_json_is_what_the_gateway_answers(target: str, capsys: Captured) -> None:
    assert main(["search", target, "", "--kind", "prompt", "--limit", "1", "--json"]) == 0

    found = json.loads(printed(capsys))
    (result,) = found["results"]
    assert (result["score"], result["item"]["id"], found["ranking"]) == (1.0, "prompt:greet", "weighted")


@on("server.py:hub", "GATEWAY")
def test_a_search_that_finds_nothing_prints_nothing(target: str, capsys: Captured) -> None:
    assert main(["search", target, "zzzz"]) == 0
    assert printed(capsys) == ""


def test_a_served_hub_without_a_gateway_cannot_be_searched(url: str, capsys: Captured) -> None:
    assert main(["search", url, "add"]) == 1
    assert "has no gateway" in complaint(capsys)


# describe


def test_what_is_behind_a_gateway_is_described_with_its_link(gateway_url: str, capsys: Captured) -> None:
    assert main(["describe", gateway_url, "add"]) == 0

    shown = json.loads(printed(capsys))
    assert (shown["id"], shown["kind"]) == ("add", "capability")
    assert shown["links"][0]["input_schema"]["required"] == ["a", "b"]


@on("server.py:hub", "GATEWAY")
def test_the_id_of_something_that_was_found_can_be_described(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "prompt:greet"]) == 0
    assert json.loads(printed(capsys))["links"][0]["method"] == "prompts/get"


@on("server.py:hub", "GATEWAY")
def test_a_misspelt_id_is_told_with_the_one_that_was_meant(target: str, capsys: Captured) -> None:
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
def test_what_is_not_there_cannot_be_described(target: str, capsys: Captured) -> None:
    assert main(["describe", target, "nothing"]) == 1
    assert "nothing called 'nothing'" in complaint(capsys)


# call


@on(*TARGETS)
def test_a_tool_is_called(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": 1, "b": 2.5}']) == 0
    assert printed(capsys) == "3.5\n"


@on(*TARGETS)
def test_a_result_is_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": 1, "b": 2.5}', "--json"]) == 0

    result = json.loads(printed(capsys))
    assert result["structuredContent"] == {"result": 3.5}
    assert result["content"] == [{"type": "text", "text": "3.5"}]


@on("server.py:hub", "URL")
def test_a_tool_without_arguments_needs_none_and_may_be_hidden(target: str, capsys: Captured) -> None:
    assert main(["call", target, "secret"]) == 0
    assert printed(capsys) == "found me\n"


@on("server.py:hub", "URL")
def test_blocks_that_are_no_text_are_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["call", target, "picture"]) == 0

    word, picture = printed(capsys).splitlines()
    assert word == "a dot"
    assert json.loads(picture) == {"type": "image", "data": base64.b64encode(b"dot").decode(), "mimeType": "image/png"}


@on("server.py:hub", "URL")
def test_a_tool_that_fails_fails_the_command(target: str, capsys: Captured) -> None:
    assert main(["call", target, "refuse"]) == 1
    assert complaint(capsys) == "Not today."


@on("server.py:hub", "URL")
def test_a_failure_as_json_still_goes_to_stdout(target: str, capsys: Captured) -> None:
    assert main(["call", target, "refuse", "--json"]) == 1
    assert json.loads(printed(capsys))["isError"] is True


@on(*TARGETS)
def test_arguments_that_do_not_fit_are_told(target: str, capsys: Captured) -> None:
    assert main(["call", target, "add", '{"a": "one"}']) == 1
    assert complaint(capsys).startswith("Invalid arguments for tool add: ")


@on(*TARGETS)
def test_a_tool_that_is_not_there_is_told(target: str, capsys: Captured) -> None:
    assert main(["call", target, "nothing"]) == 1
    assert complaint(capsys) == "waypost: Unknown tool: nothing"


@pytest.mark.parametrize("arguments", ["{", "[1]", "three", '"text"', ""])
def test_arguments_that_are_no_json_object_are_refused(arguments: str, project: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["call", "server.py:hub", "add", arguments])
    assert ended.value.code == 2
    assert "not a JSON object" in complaint(capsys)


# read


@on("server.py:hub", "deskpackage.server:hub", "URL", "URL/mcp")
@pytest.mark.parametrize(("uri", "text"), [("docs://readme", "# Grüße\n"), ("notes://7", "note 7\n")])
def test_a_resource_is_read(target: str, uri: str, text: str, capsys: Captured) -> None:
    assert main(["read", target, uri]) == 0
    assert printed(capsys) == text


@on("server.py:hub", "URL")
def test_contents_are_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["read", target, "docs://readme", "--json"]) == 0
    expected = [{"uri": "docs://readme", "text": "# Grüße", "mimeType": "text/markdown"}]
    assert json.loads(printed(capsys)) == expected


@on("server.py:hub", "URL")
def test_bytes_are_printed_as_they_are(target: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["read", target, "docs://logo"]) == 0
    assert capsysbinary.readouterr().out == b"\x89PNG\r\n\x00\xff"


@on("server.py:hub", "URL")
def test_a_resource_that_is_not_there_is_told(target: str, capsys: Captured) -> None:
    assert main(["read", target, "docs://gone"]) == 1
    assert complaint(capsys) == "waypost: Resource not found: docs://gone"


def test_a_hub_without_resources_says_so_in_a_sentence(project: Path, capsys: Captured) -> None:
    assert main(["read", "waypost.yaml", "docs://readme"]) == 1
    assert complaint(capsys).startswith("waypost: ")


def test_contents_of_several_parts_keep_their_order(project: Path) -> None:
    (project / "parts.py").write_text(
        "from waypost import Hub\n"
        "from waypost.wire.content import BlobContents, TextContents\n"
        "hub = Hub('parts', version='1')\n"
        "@hub.resource('docs://parts')\n"
        "async def parts() -> list:\n"
        "    first = TextContents('docs://1', 'first')\n"
        "    return [first, BlobContents('docs://2', b'second\\n'), TextContents('docs://3', 'third')]\n"
    )
    done = waypost("read", "parts.py:hub", "docs://parts", cwd=project)

    assert (done.returncode, done.stdout) == (0, "first\nsecond\nthird\n")


# Whole processes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "server.py:hub", "--json"], 0),
        (["call", "server.py:hub", "add", '{"a": 1, "b": 2}', "--json"], 0),
        (["call", "server.py:hub", "refuse"], 1),
    ],
)
def test_a_process_prints_its_data_and_nothing_else(arguments: list[str], code: int, project: Path) -> None:
    done = waypost(*arguments, cwd=project)

    assert done.returncode == code
    if code == 0:
        assert done.stderr == ""
        decoded: Any = json.loads(done.stdout)
        assert decoded
    else:
        assert (done.stdout, done.stderr) == ("", "Not today.\n")
