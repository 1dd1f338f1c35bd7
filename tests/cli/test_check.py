"""`waypost check` and `waypost schema`"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.shell import waypost
from waypost.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("waypost.yaml"))

Captured = pytest.CaptureFixture[str]

BAD = """\
version: "1"
server:
  name: desk
  prot: 8420
toolkits: [./gone.py, ./broken.py, ./wrong.py]
prompts:
  greet: {template: "{{ name"}
"""

ONLY_BAD_TOOLKITS = """\
version: "1"
toolkits:
  - ./broken.py
  - ./wrong.py
"""


def write(project: Path, text: str) -> None:
    (project / "waypost.yaml").write_text(text)
    (project / "broken.py").write_text("1 / 0\n")
    (project / "wrong.py").write_text(
        "from waypost import Toolkit, tool\n\n\nclass Kit(Toolkit):\n    @tool(nmae='x')\n    def f(self): ...\n"
    )


def lines(capsys: Captured) -> list[str]:
    said = capsys.readouterr()
    assert said.err == ""
    return list(said.out.splitlines())


def schema(capsys: Captured) -> dict[str, Any]:
    assert main(["schema"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    decoded: dict[str, Any] = json.loads(said.out)
    return decoded


# check


@pytest.mark.parametrize("arguments", [[], ["waypost.yaml"]])
def test_a_valid_file_is_reported_as_valid(arguments: list[str], project: Path, capsys: Captured) -> None:
    assert main(["check", *arguments]) == 0
    assert lines(capsys) == ["waypost.yaml: nothing wrong"]


def test_a_valid_file_has_no_findings_as_json(project: Path, capsys: Captured) -> None:
    assert main(["check", "--json"]) == 0
    assert json.loads("\n".join(lines(capsys))) == []


def test_every_finding_is_one_line_with_file_line_key_message_and_code(project: Path, capsys: Captured) -> None:
    write(project, BAD)

    assert main(["check"]) == 1

    found = lines(capsys)
    assert len(found) == 5
    for line in found:
        assert re.fullmatch(r"waypost\.yaml:\d+: [\w.\[\]]+: .+ \[CFG\d{3}\]", line)
    assert [line.split(":")[1] for line in found] == ["4", "5", "5", "5", "7"]
    assert "did you mean `port`?" in found[0]


def test_findings_as_json_have_the_same_parts(project: Path, capsys: Captured) -> None:
    write(project, BAD)

    assert main(["check", "--json"]) == 1

    first, *_ = json.loads("\n".join(lines(capsys)))
    assert first.keys() == {"file", "line", "key", "message", "code", "severity"}
    assert (first["file"], first["line"], first["key"], first["code"]) == ("waypost.yaml", 4, "server.prot", "CFG010")
    assert first["severity"] == "error"


def test_errors_from_loading_toolkits_are_findings(project: Path, capsys: Captured) -> None:
    write(project, ONLY_BAD_TOOLKITS)

    assert main(["check"]) == 1

    broken, wrong = lines(capsys)
    assert broken.startswith("waypost.yaml:3: toolkits[0]: ")
    assert "ZeroDivisionError: division by zero" in broken
    assert wrong.startswith("waypost.yaml:4: toolkits[1]: ")
    assert "unknown option 'nmae'" in wrong
    assert broken.endswith("[CFG042]")


def test_warnings_are_printed_and_do_not_fail(project: Path, capsys: Captured) -> None:
    write(project, "include: [team/*.yaml]\n")

    assert main(["check"]) == 0

    (line,) = lines(capsys)
    assert line.startswith("warning: waypost.yaml:1: include[0]: ")


def test_a_missing_file_is_a_finding(project: Path, capsys: Captured) -> None:
    assert main(["check", "gone.yaml"]) == 1

    (line,) = lines(capsys)
    assert line.startswith("gone.yaml:1: ")
    assert line.endswith("[CFG001]")


def test_a_process_fails_on_errors_and_prints_json(project: Path) -> None:
    write(project, BAD)

    done = waypost("check", "--json", cwd=project)

    assert (done.returncode, done.stderr) == (1, "")
    assert len(json.loads(done.stdout)) == 5


def test_serve_prints_the_same_findings_as_check(project: Path, capsys: Captured) -> None:
    write(project, "include: [none/*.yaml]\nservre: {}\n")

    assert main(["check"]) == 1
    checked = lines(capsys)
    assert main(["serve"]) == 1

    assert capsys.readouterr().err.splitlines() == checked
    assert [line.startswith("warning: ") for line in checked] == [True, False]


# schema


def test_schema_accepts_the_option_json(capsys: Captured) -> None:
    assert main(["schema", "--json"]) == 0
    assert json.loads("\n".join(lines(capsys))) == schema(capsys)


def test_the_schema_is_a_json_schema(capsys: Captured) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(capsys))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_the_schema_accepts_the_examples(file: Path, capsys: Captured) -> None:
    jsonschema.validate(yaml.safe_load(file.read_text()), schema(capsys))


def test_there_is_an_example_to_check() -> None:
    assert EXAMPLES


def test_the_schema_accepts_what_init_writes(tmp_path: Path, capsys: Captured) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    capsys.readouterr()

    jsonschema.validate(yaml.safe_load((tmp_path / "new" / "waypost.yaml").read_text()), schema(capsys))


@pytest.mark.parametrize(
    "wrong", [{"servre": {}}, {"server": {"port": "many"}}, {"toolkits": "./tools.py"}, {"prompts": {"x": {}}}]
)
def test_the_schema_refuses_what_check_refuses(
    wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waypost.yaml").write_text(json.dumps(wrong))

    assert main(["check"]) == 1
    capsys.readouterr()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema(capsys))
