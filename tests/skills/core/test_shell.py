"""Running allowed commands: a corpus of injections, limits, and the end of processes."""

from __future__ import annotations

import asyncio
import os
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, skill
from tests.upstreams.conftest import until
from waypost.errors import ToolError
from waypost.outbound.egress import Egress
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.core.shell import MAX_OUTPUT_BYTES, parse_command

COMMANDS = ["touch canary", "touch$IFScanary", "/usr/bin/touch canary", "sh -c 'touch canary'", "python3 -c 1"]
WRAPPINGS = [
    *("; {}", ";{};", "&& {}", "|| {}", "| {}", "|& {}", "& {}", "&{}&", "$({})", "`{}`", "${{{}}}", "$(({}))"),
    *("\n{}", "\r\n{}", "\r{}", "\t{}", "\v{}", "a\n{}\n", "#\n{}", "'; {}; '", '"; {}; "', "'$({})'", '"$({})"'),
    *("\\; {}", "\\\n{}", "<({})", ">({})", "> canary {}", ">> canary {}", "< /etc/passwd {}", "<<< {}", "2>&1 {}"),
    *("{{{}}}", "({})", "[[ {} ]]", "! {}", "--; {}", "-- {}", "--flag={}", "-e {}", "--exec={}", "-oProxyCommand={}"),
    *("%0a{}", "%3b{}", "$'\\n{}'", "\u037e{}", "\uff1b{}", "\u2028{}", "\x1b[{}", "\x00{}", "a\x00; {}", "*; {}"),
    *("~; {}", "!!; {}", "$0 {}", "$@; {}", "eval {}", "exec {}", "env {}", "xargs {}", "nohup {} &", "{}", "A=1 {}"),
]
ODD = [
    *("", " ", "'", '"', "\\", "$", "$$", "$HOME", "${PATH}", "~", "*", "?", "[a-z]", "{a,b}", "!", "#", "-", "--"),
    *(
        "-rf",
        "--help",
        "--version",
        "-c",
        "../../etc/passwd",
        "/etc/passwd",
        "file with spaces",
        "\u00e9\u4e2d\U0001f600",
    ),
    *("a" * 10_000, "'" * 3, '"' * 3, "\\\\", "\\'", "%s%n", "$(", "`", "${", "\u202e", "\ufeff", "\x7f", "\x01"),
]
PAYLOADS = list(dict.fromkeys([wrapping.format(command) for wrapping, command in product(WRAPPINGS, COMMANDS)] + ODD))


def fake(folder: Path) -> str:
    """A program that prints its exact arguments, each followed by a separator."""
    program = folder / "fake"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf \'%s\\036\\036\' "$word"; done\n')
    program.chmod(0o755)
    return str(program)


def names(folder: Path) -> list[str]:
    """The files in a folder; an additional one is a successful injection."""
    return sorted(os.listdir(folder))


def settings(folder: Path, *allowed: tuple[str, ...], timeout: float = 30.0) -> CoreSettings:
    return CoreSettings(Egress(), shell_allowed=allowed, shell_directory=folder, timeout=timeout)


async def run(given: CoreSettings, command: str, **config: Any) -> dict[str, Any]:
    """The skill without a hub around it, so that a corpus runs fast."""
    context: Any = None
    answer: dict[str, Any] = await skill("shell").run({"command": command, "config": config}, context, given)
    return answer


def said(answer: dict[str, Any]) -> list[str]:
    return str(answer["stdout"]).split("\x1e\x1e")[:-1]


@asynchronous
async def test_a_quoted_injection_arrives_unchanged_as_one_word(tmp_path: Path) -> None:
    program = fake(tmp_path)
    given = settings(tmp_path, (program,))
    exact, refused = 0, 0
    for payload in PAYLOADS:
        try:
            answer = await run(given, f"{program} {shlex.quote(payload)}")
        except ToolError:
            assert "\0" in payload, payload
            refused += 1
            continue
        assert said(answer) == [payload]
        exact += 1

    counts = f"tried {len(PAYLOADS)}, exact {exact}, refused {refused}"
    assert exact + refused == len(PAYLOADS) >= 300, counts
    assert names(tmp_path) == ["fake"], counts


@asynchronous
async def test_an_injection_without_quotes_is_split_into_words_or_refused(tmp_path: Path) -> None:
    program = fake(tmp_path)
    given = settings(tmp_path, (program, "run"))
    exact, refused = 0, 0
    for payload in PAYLOADS:
        command = f"{program} run {payload}"
        try:
            answer = await run(given, command)
        except ToolError:
            refused += 1
            continue
        assert [program, *said(answer)] == shlex.split(command)
        exact += 1

    counts = f"tried {len(PAYLOADS)}, exact {exact}, refused {refused}"
    assert exact + refused == len(PAYLOADS) >= 300, counts
    assert exact > 200, counts
    assert names(tmp_path) == ["fake"], counts


@asynchronous
async def test_an_injection_in_place_of_the_command_is_refused(tmp_path: Path) -> None:
    program = fake(tmp_path)
    given = settings(tmp_path, (program, "run"))
    tried, refused = 0, 0
    for payload in PAYLOADS:
        for command in (payload, f"{payload} {program} run", f"{program}{payload} run", f"{program} {payload} run"):
            words = _words(command)
            if words is not None and words[:2] == [program, "run"]:
                continue
            tried += 1
            try:
                await run(given, command)
            except ToolError:
                refused += 1

    assert refused == tried >= 1000, f"tried {tried}, refused {refused}"
    assert names(tmp_path) == ["fake"]


def _words(command: str) -> list[str] | None:
    try:
        return shlex.split(command)
    except ValueError:
        return None


@asynchronous
async def test_the_skill_is_off_until_the_operator_allows_something(tmp_path: Path) -> None:
    async with calling(shell_directory=tmp_path) as call:
        for config in ({}, {"whitelist": ["ls"]}, {"shell_allowed": [["ls"]]}, {"allowed": "*"}):
            reply = await call("shell", command="ls", config=config)
            assert reply.is_error
            assert reply.text.startswith("The shell skill is off")


@pytest.mark.parametrize(
    "command",
    [
        *("git push", "git", "gitlog", "git logs", "git 'log '", "GIT log", "/usr/bin/git log", "./git log"),
        *("git -c core.pager=x log", "git --exec-path=. log", "env git log", "'git log'", "''", "log git"),
    ],
)
def test_a_command_must_begin_with_exactly_the_allowed_words(command: str) -> None:
    with pytest.raises(ToolError, match="not among those"):
        parse_command(command, (("git", "log"), ("git", "status")))


@pytest.mark.parametrize("command", ["git log", "git log -5", 'git "log" x', "git status"])
def test_an_allowed_command_may_have_more_words(command: str) -> None:
    assert parse_command(command, (("git", "log"), ("git", "status"))) == shlex.split(command)


def test_an_allowed_command_ending_with_two_dashes_accepts_no_options_before_them() -> None:
    allowed = (("grep", "-r", "--"),)

    assert parse_command("grep -r -- --include=x .", allowed)
    with pytest.raises(ToolError):
        parse_command("grep -r --file=/etc/passwd -- x", allowed)


@asynchronous
async def test_arguments_change_neither_directory_environment_nor_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYPOST_SECRET", "hunter2")
    given = settings(tmp_path, ("env",), ("pwd",))
    config = {"cwd": "/", "directory": "/", "env": {"A": "1"}, "timeout": 1000, "shell": True}

    variables = dict(line.partition("=")[::2] for line in (await run(given, "env", **config))["stdout"].splitlines())
    directory = (await run(given, "pwd", **config))["stdout"].strip()

    assert set(variables) <= {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "PWD", "SHLVL", "_"}
    assert variables["HOME"] == str(tmp_path)
    assert directory == str(tmp_path)


@asynchronous
async def test_the_exit_code_and_both_outputs_are_returned(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("#!/bin/sh\necho out; echo err >&2; exit 3\n")
    (tmp_path / "both").chmod(0o755)
    async with calling(shell_allowed=((str(tmp_path / "both"),),), shell_directory=tmp_path) as call:
        reply = await call("shell", input=str(tmp_path / "both"))

    assert reply.structured == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n", "truncated": False}


@asynchronous
async def test_output_is_cut_at_the_limit(tmp_path: Path) -> None:
    answer = await run(settings(tmp_path, ("head",)), "head -c 5000000 /dev/zero")

    assert (len(answer["stdout"]), answer["truncated"], answer["exit_code"]) == (MAX_OUTPUT_BYTES, True, 0)


@pytest.mark.parametrize("command", ["no-such-program", "/", "/etc/passwd"])
@asynchronous
async def test_a_program_that_cannot_be_run_is_an_error(command: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="The command cannot be run: "):
        await run(settings(tmp_path, (command,)), command)


@pytest.mark.parametrize("command", ["ls 'open", 'ls "open', "ls \\", "ls \0", "ls " + "x" * 40_000])
def test_a_malformed_command_is_an_error(command: str) -> None:
    with pytest.raises(ToolError, match="The command "):
        parse_command(command, (("ls",),))


FAMILY = "#!/bin/sh\necho $$ > parent\nsleep 1000 &\necho $! > child\necho ready > ready\nwait\n"


def family(folder: Path) -> str:
    """A program that starts another and waits for it."""
    program = folder / "family"
    program.write_text(FAMILY)
    program.chmod(0o755)
    return str(program)


def is_gone(folder: Path, name: str) -> bool:
    """Whether the process with the id in a file has ended; a zombie has."""
    try:
        state = Path(f"/proc/{int((folder / name).read_text())}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return True  # or killed before it wrote its id
    return state in ("Z", "X")


@asynchronous
async def test_a_command_that_times_out_is_killed_with_its_children(tmp_path: Path) -> None:
    program = family(tmp_path)
    with pytest.raises(ToolError, match=r"did not end within 0\.5 s"):
        await run(settings(tmp_path, (program,), timeout=0.5), program)

    await until(lambda: is_gone(tmp_path, "parent") and is_gone(tmp_path, "child"))


@asynchronous
async def test_a_cancelled_command_is_killed_with_its_children(tmp_path: Path) -> None:
    program = family(tmp_path)
    running = asyncio.ensure_future(run(settings(tmp_path, (program,)), program))
    await until((tmp_path / "ready").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: is_gone(tmp_path, "parent") and is_gone(tmp_path, "child"))


@asynchronous
async def test_a_child_left_behind_is_killed_when_the_command_ends(tmp_path: Path) -> None:
    program = tmp_path / "leaving"
    program.write_text("#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $! > child\n")
    program.chmod(0o755)
    answer = await run(settings(tmp_path, (str(program),)), str(program))

    assert answer["exit_code"] == 0
    await until(lambda: is_gone(tmp_path, "child"))


@asynchronous
async def test_a_command_cancelled_while_it_starts_is_killed(tmp_path: Path) -> None:
    program = family(tmp_path)
    for turns in range(20):
        running = asyncio.ensure_future(run(settings(tmp_path, (program,)), program))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await until(lambda: is_gone(tmp_path, "parent") and is_gone(tmp_path, "child"))
