"""Scripts that run only with their approved content."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.workflows.executors.test_building import a_run, failure_of, model, surroundings
from waypost.workflows.executors import build
from waypost.workflows.executors.kind import Executor

SHOW = """import json, os, sys
print(json.dumps({"file": __file__, "argv": sys.argv[1:], "key": os.environ["IDEMPOTENCY_KEY"]}))
"""


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where private copies are made."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def script(file: Path, content: str, **written: Any) -> Executor:
    """A script that was approved with this content, which may differ from the file."""
    digest = sha256(content.encode()).hexdigest()
    return build(model(kind="script", file=str(file), sha256=digest, **written), surroundings())


@asynchronous
async def test_an_approved_file_runs_as_a_program(tmp_path: Path, copies: Path) -> None:
    content = f"#!{sys.executable}\n{SHOW}\n"
    (tmp_path / "deploy").write_text(content)
    output = await script(tmp_path / "deploy", content, args=["$.arguments.to"]).run(a_run({"to": "prod"}, key="k"))

    assert output["json"]["argv"] == ["prod"]
    assert output["json"]["key"] == "k"


@asynchronous
async def test_an_approved_file_runs_by_its_interpreter_under_its_own_name(tmp_path: Path, copies: Path) -> None:
    (tmp_path / "deploy.py").write_text(SHOW)
    output = await script(tmp_path / "deploy.py", SHOW, command=[sys.executable, "-I"]).run(a_run())

    ran = Path(output["json"]["file"])
    assert (ran.name, ran.is_relative_to(copies)) == ("deploy.py", True)


@asynchronous
async def test_a_changed_file_does_not_run_and_both_digests_are_named(tmp_path: Path, copies: Path) -> None:
    mark = tmp_path / "mark"
    evil = f"#!/bin/sh\ntouch {mark}\n"
    (tmp_path / "deploy").write_text(evil)
    failure = await failure_of(script(tmp_path / "deploy", "#!/bin/sh\n"))

    assert failure.error_class == "permanent_error"
    assert sha256(evil.encode()).hexdigest()[:12] in failure.message
    assert sha256(b"#!/bin/sh\n").hexdigest()[:12] in failure.message
    assert not mark.exists()


@asynchronous
async def test_a_change_of_the_file_after_the_check_has_no_effect(tmp_path: Path, copies: Path) -> None:
    file, mark, go = tmp_path / "deploy", tmp_path / "mark", tmp_path / "go"
    os.mkfifo(go)
    content = f"#!/bin/sh\nread line < {go}\necho approved\n"
    file.write_text(content)
    running = asyncio.ensure_future(script(file, content).run(a_run()))
    await until(lambda: any(copies.rglob("deploy")))
    file.write_text(f"#!/bin/sh\ntouch {mark}\n")
    await asyncio.to_thread(go.write_text, "go\n")

    assert (await running)["stdout"] == "approved\n"
    assert not mark.exists()


@asynchronous
async def test_the_copy_is_private_and_deleted_afterwards(tmp_path: Path, copies: Path) -> None:
    content = '#!/bin/sh\nstat -c %a "$0" "$(dirname "$0")"\n'
    (tmp_path / "look").write_text(content)
    output = await script(tmp_path / "look", content).run(a_run())

    assert output["stdout"].split() == ["700", "700"]
    assert left_in(copies) == []


@asynchronous
async def test_the_copy_is_deleted_after_a_cancellation(tmp_path: Path, copies: Path) -> None:
    content = f"#!/bin/sh\necho > {tmp_path}/ready\nexec sleep 1000\n"
    (tmp_path / "wait").write_text(content)
    running = asyncio.ensure_future(script(tmp_path / "wait", content).run(a_run()))
    await until((tmp_path / "ready").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert left_in(copies) == []


@asynchronous
async def test_a_missing_or_irregular_file_is_a_permanent_failure(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "pipe", "."):
        failure = await failure_of(script(tmp_path / name, ""))

        assert failure.error_class == "permanent_error"


@asynchronous
async def test_a_script_without_an_interpreter_is_not_passed_to_a_shell(tmp_path: Path, copies: Path) -> None:
    (tmp_path / "notes").write_text("echo hello\n")
    failure = await failure_of(script(tmp_path / "notes", "echo hello\n"))
    output = await script(tmp_path / "notes", "echo hello\n", command=["sh"]).run(a_run())

    assert (failure.error_class, "without a `#!` line" in failure.message) == ("permanent_error", True)
    assert output["stdout"] == "hello\n"


@asynchronous
async def test_the_failure_of_a_script_has_its_file_name(tmp_path: Path, copies: Path) -> None:
    content = "#!/bin/sh\necho broken >&2\nexit 4\n"
    (tmp_path / "deploy").write_text(content)
    failure = await failure_of(script(tmp_path / "deploy", content))

    assert failure.message == "deploy ended with exit code 4: broken"


@asynchronous
async def test_many_scripts_start_at_once(tmp_path: Path, copies: Path) -> None:
    content = "#!/bin/sh\necho $1\n"
    (tmp_path / "say").write_text(content)
    executor = script(tmp_path / "say", content, args=["$.arguments.word"])
    outputs = await asyncio.gather(*(executor.run(a_run({"word": number})) for number in range(40)))

    assert [output["json"] for output in outputs] == list(range(40))
