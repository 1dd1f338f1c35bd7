"""The command line: its help, its exit codes, and one-line errors."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import COMMAND, PATIENCE, environment, waypost
from waypost.cli import main
from waypost.cli.command import Output
from waypost.cli.main import COMMANDS as TABLE
from waypost.cli.main import build_parser
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
        "install",
        "import",
        "doctor",
        "completion",
        "store",
        "skills-worker",
    ),
    *(
        "skills",
        "prompts",
        "workers",
        "replicas",
        "upstreams",
        "runs",
        "approvals",
        "console",
        "keys",
        "policy",
        "breakers",
        "audit",
    ),
]
ACTIONS = {
    "store": ["check", "migrate", "backup", "vacuum"],
    "skills": ["list", "create", "load", "unload", "reload", "rollback", "docs"],
    "prompts": ["list", "show", "remove"],
    "workers": ["list", "token"],
    "upstreams": ["list", "approve", "restart", "login", "logout"],
    "runs": ["list", "show", "cancel", "resolve"],
    "approvals": ["list", "approve", "reject"],
    "keys": ["create", "list", "revoke"],
    "breakers": ["list", "reset"],
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
    ["install"],
    ["install", "netscape"],
    ["install", "cursor", "waypost.yaml", "extra"],
    ["import"],
    ["completion"],
    ["completion", "cmd"],
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
    """The exit code of a command that ends while its arguments are parsed."""
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
def test_every_example_is_parsed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    usage_code(*command.split(), "--help")
    example = " ".join(capsys.readouterr().out.split()).rpartition("example: waypost ")[2].partition(" > ")[0]

    given = build_parser(command.partition(" ")[0]).parse_args(shlex.split(example))

    assert given.command == command.partition(" ")[0]


def test_the_help_names_every_command_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code("--help") == 0

    shown = capsys.readouterr().out
    assert "example: waypost serve" in shown
    for command in COMMANDS:
        assert f"\n    {command}" in shown


def test_every_command_is_covered_by_these_tests() -> None:
    commands = choices(build_parser(*COMMANDS))

    assert set(commands) == set(COMMANDS)
    assert {name: list(found) for name, command in commands.items() if (found := choices(command))} == ACTIONS


def choices(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a command."""
    groups = [action for action in command._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(groups[0].choices) if groups else {}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_code("--version") == 0
    assert capsys.readouterr().out == f"waypost {__version__}\n"


@pytest.mark.parametrize("arguments", WRONG_USAGE, ids=lambda arguments: " ".join(arguments) or "nothing")
def test_wrong_usage_is_a_one_line_error_with_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
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
def test_a_misspelt_command_gets_a_suggestion(
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
    def run(_args: argparse.Namespace) -> Output:
        raise error

    monkeypatch.setattr("waypost.cli.schema.COMMAND.run", run)
    return main(["schema"])


def test_an_error_is_one_line_with_status_1(
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
def test_an_invalid_configuration_is_printed_finding_by_finding(
    error: ConfigError, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(error, monkeypatch) == 1
    assert capsys.readouterr().err.splitlines() == lines


def test_the_command_runs_as_a_script_and_as_a_module(tmp_path: Path) -> None:
    script = waypost("--version", cwd=tmp_path)
    module = subprocess.run(
        [sys.executable, "-m", "waypost", "--version"], capture_output=True, text=True, timeout=60, check=False
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
def test_a_failed_process_exits_with_its_status_and_one_line(arguments: list[str], code: int, tmp_path: Path) -> None:
    done = waypost(*arguments, cwd=tmp_path)

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert len((done.stderr or done.stdout).splitlines()) == 1


TOY = """\
from waypost.cli.command import JSON, Argument, Command
from waypost.cli.command import Output


def run(args):
    return Output({"greeting": args.name}, f"Hello {args.name}.", status=3 if args.name == "Mallory" else 0)


COMMAND = Command(run, "Greet a person.", "waypost greet Ada", Argument("name", metavar="NAME"), JSON)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of another package: a module, and a line in the table."""
    (tmp_path / "toy_greeting.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_greeting", raising=False)
    monkeypatch.setitem(TABLE, "greet", ("toy_greeting", "greet a person"))


@pytest.mark.usefixtures("toy")
def test_a_command_is_a_module_and_a_line_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "Ada"]) == 0
    assert capsys.readouterr().out == "Hello Ada.\n"
    assert main(["greet", "Mallory", "--json"]) == 3
    assert json.loads(capsys.readouterr().out) == {"greeting": "Mallory"}
    assert usage_code("--help") == 0
    assert re.search("^    greet +greet a person$", capsys.readouterr().out, re.MULTILINE)
    assert usage_code("greet", "--help") == 0
    assert "example: waypost greet Ada" in capsys.readouterr().out
    assert usage_code("greet") == 2


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [(["--help"], set()), (["keys", "--help"], {"keys"}), (["skills-worker", "--help"], {"skills_worker"})],
    ids=["no command", "keys", "skills-worker"],
)
def test_only_the_command_that_runs_is_imported(arguments: list[str], imported: set[str]) -> None:
    code = (
        "import sys\nfrom waypost.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    modules = set(done.stderr.splitlines())
    assert {module for module, _ in TABLE.values()} & modules == {f"waypost.cli.{name}" for name in imported}


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", "server.py:hub"], 0),
        (["list", "server.py:hub", "--json"], 0),
        (["read", "server.py:hub", "docs://logo"], 0),
        (["check", "wrong.yaml"], 1),
        (["--help"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_command_with_a_closed_pipe_ends_silently(
    arguments: list[str], code: int, unbuffered: str, project: Path
) -> None:
    (project / "wrong.yaml").write_text("version: 7\n")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=project,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (code, "")


INTERRUPTED_IMPORT = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from waypost.cli import main
sys.exit(main(["schema"]))
"""


@pytest.mark.parametrize("module", ["waypost.cli.command", "waypost.cli.schema", "waypost.config.schemas"])
def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
