"""The command line: its help, its exit codes, and errors of one sentence."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import waypost
from waypost.cli import main
from waypost.cli.main import parser
from waypost.config.findings import finding
from waypost.errors import ConfigError, WaypostError
from waypost.version import __version__

COMMANDS = [
    *(
        "serve",
        "list",
        "search",
        "describe",
        "call",
        "read",
        "check",
        "schema",
        "graph",
        "simulate",
        "replay",
        "init",
        "store",
        "skills-worker",
    ),
    *("skills", "prompts", "workers", "upstreams", "runs", "approvals", "keys", "policy", "audit"),
]
ACTIONS = {
    "store": ["check", "migrate", "backup", "vacuum"],
    "skills": ["list", "create", "load", "unload", "reload", "rollback", "docs"],
    "prompts": ["list", "show", "remove"],
    "workers": ["list"],
    "upstreams": ["list", "approve", "restart", "login", "logout"],
    "runs": ["list", "show", "cancel", "resolve"],
    "approvals": ["list", "approve", "reject"],
    "keys": ["create", "list", "revoke"],
    "policy": ["list", "test"],
    "audit": ["tail", "verify"],
}
DEEPER = [f"skills docs {action}" for action in ("list", "show", "add", "remove")]
EVERY = [*COMMANDS, *(f"{command} {action}" for command, actions in ACTIONS.items() for action in actions), *DEEPER]

WRONG_USAGE = [
    [],
    ["dance"],
    ["lst"],
    ["approvals", "aprove", "ap_1"],
    ["call", "server.py:hub"],
    ["read", "server.py:hub"],
    ["describe", "server.py:hub"],
    ["search", "server.py:hub"],
    ["search", "server.py:hub", "add", "--kind", "planet"],
    ["search", "server.py:hub", "add", "--limit", "many"],
    ["serve", "--port", "many"],
    ["list", "server.py:hub", "--colour"],
    ["schema", "extra"],
    ["store"],
    ["store", "burn"],
    ["store", "check", "waypost.yaml", "extra"],
    ["store", "check", "--to", "copy.db"],
    ["store", "backup"],
    ["keys"],
    ["keys", "create"],
    ["keys", "create", "--id", "ci", "--expires", "soon"],
    ["keys", "revoke"],
    ["policy", "test", "--principal", "ci"],
    ["policy", "test", "--principal", "ci", "--capability", "add", "--args", "[1]"],
    ["audit", "tail", "--limit", "0"],
    ["audit", "tail", "--decision", "maybe"],
    ["skills", "load"],
    ["upstreams", "approve"],
    ["upstreams", "login", "up", "--principal", "ada"],
    ["upstreams", "login", "up", "--principal", "ada", "--header", "nothing"],
    ["upstreams", "logout", "up"],
    ["graph", "waypost.yaml"],
    ["simulate", "waypost.yaml"],
    ["simulate", "waypost.yaml", "release", "--walks", "0"],
    ["replay", "waypost.yaml"],
    ["replay", "waypost.yaml", "wf_1", "--file", "history.json"],
    ["runs", "list", "--limit", "none"],
    ["runs", "show"],
    ["runs", "resolve", "wf_1"],
    ["runs", "resolve", "wf_1", "--as", "maybe"],
    ["runs", "resolve", "wf_1", "--as", "succeeded", "--output", "{"],
    ["approvals", "approve"],
]


def usage_code(*arguments: str) -> int:
    """The code a command ends with before it starts."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("command", EVERY)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code(*command.split(), "--help") == 0

    shown = capsys.readouterr().out
    assert f"usage: waypost {command}" in shown
    assert f"example: waypost {command}" in " ".join(shown.split())


@pytest.mark.parametrize("command", EVERY)
def test_every_example_is_a_call_that_is_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    usage_code(*command.split(), "--help")
    example = " ".join(capsys.readouterr().out.split()).rpartition("example: waypost ")[2].partition(" > ")[0]

    given = parser().parse_args(shlex.split(example))

    assert given.command == command.partition(" ")[0]


def test_the_help_names_every_command_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code("--help") == 0

    shown = capsys.readouterr().out
    assert "example: waypost serve" in shown
    for command in COMMANDS:
        assert f"\n    {command}" in shown


def test_no_command_is_left_out_here() -> None:
    commands = choices(parser())

    assert set(commands) == set(COMMANDS)
    assert {name: list(found) for name, command in commands.items() if (found := choices(command))} == ACTIONS


def choices(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """What can follow a command."""
    groups = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices) if groups else {}


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code("--version") == 0
    assert capsys.readouterr().out == f"waypost {__version__}\n"


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=lambda arguments: " ".join(arguments) or "nothing")
def test_wrong_usage_is_one_sentence_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code(*arguments) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("waypost")
    assert "--help" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lst"], "waypost: argument COMMAND: there is no 'lst'; did you mean 'list'? See `waypost --help`\n"),
        (
            ["approvals", "aprove"],
            "waypost approvals: argument ACTION: there is no 'aprove'; did you mean 'approve'? "
            "See `waypost approvals --help`\n",
        ),
    ],
    ids=["command", "action"],
)
def test_a_command_that_is_nearly_right_is_told_the_right_one(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage_code(*arguments) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", [[], ["list"], ["skills", "docs"]], ids=" ".join)
def test_help_can_be_asked_for_as_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code("help", *words) == 0
    asked = capsys.readouterr().out

    assert usage_code(*words, "--help") == 0
    assert asked == capsys.readouterr().out


def failing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    def run(_given: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("waypost.cli.check.run_schema", run)
    return main(["schema"])


def test_an_error_is_one_sentence_and_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(WaypostError("The cat is on the keyboard."), monkeypatch) == 1
    assert capsys.readouterr().err == "waypost: The cat is on the keyboard.\n"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (
            ConfigError("both", [finding("a.yaml", 1, (), "one", "CFG001"), finding("a.yaml", 2, (), "two", "CFG031")]),
            ["a.yaml:1: one [CFG001]", "warning: a.yaml:2: two [CFG031]"],
        ),
        (ConfigError("The file is on fire."), ["The file is on fire."]),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told_finding_by_finding(
    error: ConfigError, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(error, monkeypatch) == 1
    assert capsys.readouterr().err.splitlines() == lines


def test_the_command_runs_as_a_script_and_as_a_module(tmp_path: Path) -> None:
    script = waypost("--version", cwd=tmp_path)
    module = subprocess.run(
        [sys.executable, "-m", "waypost", "--version"], capture_output=True, text=True, timeout=20, check=False
    )

    assert (script.returncode, script.stdout) == (module.returncode, module.stdout) == (0, f"waypost {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["dance"], 2),
        (["list", "nowhere.py:hub"], 1),
        (["check", "nowhere.yaml"], 1),
        (["list", "http://127.0.0.1:1"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_process_ends_with_its_code_and_one_sentence(arguments: list[str], code: int, tmp_path: Path) -> None:
    done = waypost(*arguments, cwd=tmp_path)

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert len((done.stderr or done.stdout).splitlines()) == 1
