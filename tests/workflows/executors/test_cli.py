"""Programs: arguments, environment, input, output and exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.skills.core.test_shell import family, is_gone
from tests.upstreams.conftest import until
from tests.workflows.executors.test_building import a_run, failure_of, model, surroundings
from waypost.config.models import CliConnection, Connection, Reliability, RestConnection
from waypost.errors import ExecutorFailed
from waypost.workflows.executors import build, supervise
from waypost.workflows.executors.kind import Executor

SHOW = "import json, os, sys; print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ), 'cwd': os.getcwd()}))"


def cli(connections: Mapping[str, Connection] | None = None, **written: Any) -> Executor:
    return build(model(kind="cli", **written), surroundings(connections))


def python(program: str, *args: Any, **written: Any) -> Executor:
    return cli(command=sys.executable, args=["-c", program, *args], **written)


@asynchronous
async def test_the_output_is_exit_code_texts_and_parsed_json() -> None:
    output = await python("import sys; print('{\"a\": [1]}'); print('careful', file=sys.stderr)").run(a_run())

    assert output == {
        "exitCode": 0,
        "success": True,
        "stdout": '{"a": [1]}\n',
        "stderr": "careful\n",
        "json": {"a": [1]},
    }


@pytest.mark.parametrize("said", ["", "hello", "{", "NaN", "[" * 100_000])
@asynchronous
async def test_the_json_output_is_null_if_stdout_is_not_json(said: str) -> None:
    output = await cli(command="cat", stdin=said).run(a_run())

    assert (output["json"], output["stdout"]) == (None, said)


@asynchronous
async def test_arguments_are_paths_or_literals_and_other_values_are_written_as_json() -> None:
    args = ["$.arguments.name", "plain $.arguments.name", "$HOME", "$.context.list", 7, True, {"n": "$.input.n"}]
    run = a_run({"name": "a b; rm -rf / $(id)"}, {"list": [1, "x"]}, {"n": None})
    output = await python(SHOW, *args).run(run)

    assert output["json"]["argv"] == [
        "a b; rm -rf / $(id)",
        "plain $.arguments.name",
        "$HOME",
        '[1,"x"]',
        "7",
        "true",
        '{"n":null}',
    ]


@asynchronous
async def test_a_path_without_a_value_is_named_and_the_program_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    failure = await failure_of(cli(command="touch", args=[str(mark), "$.arguments.missing.deep"]))

    assert (failure.error_class, failure.message) == (
        "permanent_error",
        "There is no value at $.arguments.missing.deep.",
    )
    assert not mark.exists()


@pytest.mark.parametrize("written", [{"args": ["$.arguments.word"]}, {"env": {"WORD": "a\0b"}}])
@asynchronous
async def test_a_nul_is_refused(written: dict[str, Any]) -> None:
    failure = await failure_of(cli(command="echo", **written), a_run({"word": "a\0b"}))

    assert (failure.error_class, "NUL" in failure.message) == ("permanent_error", True)


@asynchronous
async def test_a_lone_surrogate_in_an_argument_is_a_permanent_failure() -> None:
    failure = await failure_of(cli(command="echo", args=["$.arguments.word"]), a_run({"word": "\ud800"}))

    assert failure.error_class == "permanent_error"


@asynchronous
async def test_only_allowed_variables_reach_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUB_SECRET", "of the hub")
    connection = CliConnection(
        command=sys.executable, env={"A": "connection", "B": "connection"}, working_directory=str(tmp_path)
    )
    written = {"args": ["-c", SHOW], "env": {"B": "executor", "IDEMPOTENCY_KEY": "forged"}}
    output = await cli({"python": connection}, connection="python", **written).run(a_run(key="k-7"))

    seen = output["json"]["env"]
    assert (seen["A"], seen["B"], seen["IDEMPOTENCY_KEY"], seen["HOME"]) == (
        "connection",
        "executor",
        "k-7",
        str(tmp_path),
    )
    assert seen["PATH"] == os.environ["PATH"]
    assert "HUB_SECRET" not in seen


@asynchronous
async def test_the_arguments_of_a_connection_come_first() -> None:
    connections = {"say": CliConnection(command="echo", args=["-n", "$.arguments.a"])}
    output = await cli(connections, connection="say", args=["$.arguments.a"]).run(a_run({"a": "b"}))

    assert output["stdout"] == "$.arguments.a b"


@asynchronous
async def test_the_working_directory_of_the_executor_overrides_that_of_the_connection(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    connections = {"python": CliConnection(command=sys.executable, working_directory=str(tmp_path))}
    written = {"connection": "python", "args": ["-c", SHOW]}
    here = await cli(connections, **written).run(a_run())
    there = await cli(connections, **written, workingDirectory=str(inner)).run(a_run())

    assert (here["json"]["cwd"], there["json"]["cwd"]) == (str(tmp_path), str(inner))


@pytest.mark.parametrize(("stdin", "read"), [("as it is\n", "as it is\n"), ({"a": "$.arguments.a"}, '{"a":[1]}')])
@asynchronous
async def test_stdin_is_text_as_given_or_other_values_as_json(stdin: Any, read: str) -> None:
    output = await cli(command="cat", stdin=stdin).run(a_run({"a": [1]}))

    assert output["stdout"] == read


@asynchronous
async def test_without_input_stdin_is_empty() -> None:
    assert (await cli(command="cat").run(a_run()))["stdout"] == ""


@asynchronous
async def test_a_stdin_path_without_a_value_is_a_failure() -> None:
    failure = await failure_of(cli(command="cat", stdin="$.arguments.text"))

    assert failure.message == "There is no value at $.arguments.text."


@asynchronous
async def test_another_exit_code_is_a_permanent_failure_with_the_end_of_stderr() -> None:
    failure = await failure_of(python("import sys; sys.stderr.write('x' * 2000 + 'the end'); sys.exit(3)"))

    assert failure.error_class == "permanent_error"
    assert failure.message.startswith(f"{Path(sys.executable).name} ended with exit code 3: ...xxx")
    assert failure.message.endswith("the end")
    assert len(failure.message) < 600


@asynchronous
async def test_a_nonzero_exit_code_need_not_be_a_failure() -> None:
    output = await python("import sys; print(1); sys.exit(3)", treatNonZeroAsFailure=False).run(a_run())

    assert (output["exitCode"], output["success"], output["json"]) == (3, False, 1)


@asynchronous
async def test_a_program_that_was_killed_names_the_signal() -> None:
    failure = await failure_of(python("import os; os.kill(os.getpid(), 9)"))

    assert failure.message.endswith("was ended by signal 9.")


@pytest.mark.parametrize(
    "written", [{"command": "/no/such/program"}, {"command": "true", "workingDirectory": "/no/dir"}]
)
@asynchronous
async def test_a_program_that_cannot_be_started_is_a_connection_error(written: dict[str, Any]) -> None:
    failure = await failure_of(cli(**written))

    assert (failure.error_class, "cannot be started" in failure.message) == ("connection_error", True)


@asynchronous
async def test_arguments_that_are_too_long_are_a_permanent_failure() -> None:
    failure = await failure_of(cli(command="true", args=["$.arguments.word"]), a_run({"word": "x" * 4_000_000}))

    assert failure.error_class == "permanent_error"


@asynchronous
async def test_output_beyond_the_limit_is_truncated_and_flagged() -> None:
    output = await python("print('1' * 100)", maxOutputBytes=10).run(a_run())

    assert (output["stdout"], output["truncated"], output["json"]) == ("1" * 10, True, None)


@asynchronous
async def test_json_is_complete_when_only_stderr_was_truncated() -> None:
    output = await python("import sys; print('[1]'); sys.stderr.write('x' * 100)", maxOutputBytes=10).run(a_run())

    assert (output["stderr"], output["truncated"], output["json"]) == ("x" * 10, True, [1])


@asynchronous
async def test_configured_values_are_redacted_in_output_and_errors() -> None:
    secret = "hunter2-and-more"
    connections = {"python": CliConnection(command=sys.executable, env={"DEPLOY": secret})}
    said = "import os, sys; sys.stderr.write('login with ' + os.environ['DEPLOY'] + os.environ['OWN']); sys.exit({})"
    written: dict[str, Any] = {"connection": "python", "env": {"OWN": "of-the-executor"}}
    failure = await failure_of(cli(connections, **written, args=["-c", said.format(1)]))
    output = await cli(connections, **written, args=["-c", said.format(0)]).run(a_run())

    assert failure.message.endswith(": login with [REDACTED][REDACTED]")
    assert output["stderr"] == "login with [REDACTED][REDACTED]"


@asynchronous
async def test_a_truncated_configured_value_is_redacted_too() -> None:
    said = "import os, sys; sys.stderr.write('login with ' + os.environ['DEPLOY']); sys.exit(1)"
    failure = await failure_of(python(said, env={"DEPLOY": "hunter2-and-more"}, maxOutputBytes=20))

    assert failure.message.endswith(": login with [REDACTED]")


@asynchronous
async def test_a_program_that_times_out_is_killed_with_its_children(tmp_path: Path) -> None:
    written = model(kind="cli", command=family(tmp_path), workingDirectory=str(tmp_path))
    supervised = supervise(written, Reliability(timeout_ms=500), surroundings())
    with pytest.raises(ExecutorFailed) as caught:
        await supervised.run(a_run())

    assert caught.value.error_class == "timeout"
    await until(lambda: is_gone(tmp_path, "parent") and is_gone(tmp_path, "child"))


@asynchronous
async def test_a_cancelled_program_is_killed_with_its_children(tmp_path: Path) -> None:
    executor = cli(command=family(tmp_path), workingDirectory=str(tmp_path))
    running = asyncio.ensure_future(executor.run(a_run()))
    await until((tmp_path / "ready").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until(lambda: is_gone(tmp_path, "parent") and is_gone(tmp_path, "child"))


@pytest.mark.parametrize("connections", [{}, {"build": RestConnection(base_url="http://h")}])
@asynchronous
async def test_a_missing_connection_or_one_of_another_kind_is_a_permanent_failure(
    connections: dict[str, Connection],
) -> None:
    failure = await failure_of(cli(connections, connection="build"))

    assert (failure.error_class, "build" in failure.message) == ("permanent_error", True)


@pytest.mark.parametrize("value", ["--output=/tmp/x", "-o", "-", -5])
@asynchronous
async def test_a_value_that_looks_like_an_option_is_refused(value: Any, tmp_path: Path) -> None:
    program = python("open('ran', 'w')", "$.arguments.rev", workingDirectory=str(tmp_path))
    with pytest.raises(ExecutorFailed, match=r"The value at \$\.arguments\.rev begins with `-`") as caught:
        await program.run(a_run({"rev": value}))

    assert caught.value.error_class == "permanent_error"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("args", "more"),
    [
        (["-x", "--", "$.arguments.rev"], {}),
        (["-x", "$.arguments.rev"], {"allowOptions": True}),
        (["-x", {"rev": "$.arguments.rev"}, "a$.arguments.rev", -5], {}),
    ],
)
@asynchronous
async def test_a_value_may_begin_with_a_dash_where_it_cannot_be_an_option(
    args: list[Any], more: dict[str, Any]
) -> None:
    output = await python(SHOW, *args, **more).run(a_run({"rev": "--all"}))

    assert output["success"]


@asynchronous
async def test_a_connection_may_end_the_options() -> None:
    connections = {"it": CliConnection(command=sys.executable, args=["-c", SHOW, "--"])}
    output = await cli(connections, connection="it", args=["$.arguments.rev"]).run(a_run({"rev": "--all"}))

    assert output["json"]["argv"] == ["--", "--all"]
