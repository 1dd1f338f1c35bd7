"""Warm processes are reused, limited in number, and ended when idle."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.contract.conftest import DEADLINE, asynchronous
from tests.skills.workbench import is_running, until, workbench
from waypost.settings import SkillLimits
from waypost.skills.processes import Process, Program, Scratch

PID = "import os\ndef run(args):\n    return os.getpid()\n"


@asynchronous
async def test_successive_calls_share_a_process(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("pid", PID)
        (warm,) = bench.skills.pool.list_pids()

        assert {await bench.text("pid") for _ in range(20)} == {str(warm)}


@asynchronous
async def test_two_hundred_calls_at_once_share_a_few_processes(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(processes=3)) as bench:
        await bench.load("pid", PID)
        pids = await asyncio.gather(*(bench.text("pid") for _ in range(200)))

        assert all(pid.isdigit() for pid in pids)
        assert 1 <= len(set(pids)) <= 3
        assert len(bench.skills.pool.list_pids()) <= 3


@asynchronous
async def test_calls_at_once_run_at_once(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(processes=3)) as bench:
        await bench.load(
            "meet",
            """
            import os, time

            permissions = ["state_read", "state_write"]

            def run(args, ctx):
                ctx.state_put(args["input"], True)
                while not all(ctx.state_get(name) for name in "abc"):
                    time.sleep(0.001)
                return os.getpid()
            """,
        )

        assert len(set(await asyncio.gather(*(bench.text("meet", input=name) for name in "abc")))) == 3


@asynchronous
async def test_the_oldest_idle_process_is_ended_for_a_new_one(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(processes=2)) as bench:
        pids = {}
        for name in ("one", "two", "three"):
            await bench.load(name, PID)
            pids[name] = int(await bench.text(name))
        await until(lambda: not is_running(pids["one"]))

        assert set(bench.skills.pool.list_pids()) == {pids["two"], pids["three"]}
        assert int(await bench.text("two")) == pids["two"]
        assert int(await bench.text("one")) != pids["one"]
        assert set(bench.skills.pool.list_pids()) > {pids["two"]}


@asynchronous
async def test_idle_processes_end_after_a_timeout(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(idle_ms=50)) as bench:
        await bench.load("pid", PID)
        pid = int(await bench.text("pid"))
        await until(lambda: not is_running(pid))

        assert bench.skills.pool.list_pids() == []
        assert int(await bench.text("pid")) != pid


@asynchronous
async def test_a_process_that_died_while_idle_is_not_used(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("pid", PID)
        first = int(await bench.text("pid"))
        os.kill(first, signal.SIGKILL)
        await until(lambda: bench.skills.pool.list_pids() == [])

        assert int(await bench.text("pid")) != first


@asynchronous
async def test_skills_that_call_skills_do_not_deadlock(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(processes=2)) as bench:
        await bench.load("inner", PID)
        await bench.load(
            "outer",
            "permissions = ['skill_invoke']\ndef run(args, ctx):\n    return ctx.invoke('skill:inner').text\n",
        )
        answers = await asyncio.gather(*(bench.text("outer") for _ in range(20)))

        assert all(answer.isdigit() for answer in answers)
        assert len(bench.skills.pool.list_pids()) <= 4


@asynchronous
async def test_too_many_waiting_calls_are_refused(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(processes=1, waiting=2)) as bench:
        await bench.load("pid", PID)
        answers = await asyncio.gather(*(bench.text("pid") for _ in range(10)))

        assert sum(answer.isdigit() for answer in answers) == 3
        assert answers.count("2 calls of skills are waiting for a process already; try again later.") == 7


@asynchronous
async def test_a_process_that_ran_out_of_memory_is_not_used_again(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "hog", "import os\ndef run(args):\n    return bytearray(10 ** 10) if args['input'] else os.getpid()\n"
        )
        first = int(await bench.text("hog"))
        assert "memory limit" in await bench.text("hog", input="much")

        assert int(await bench.text("hog")) != first


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not for Windows")
def test_skills_run_on_the_loop_of_the_http_server_too(tmp_path: Path) -> None:
    import uvloop

    async def calls() -> None:
        async with asyncio.timeout(DEADLINE), workbench(tmp_path) as bench:
            await bench.load("pid", PID)
            await bench.load("busy", "def run(args):\n    while True: pass\n")
            await bench.load(
                "chatty", "async def run(args, ctx):\n    print(1)\n    await ctx.progress(1)\n    return 'x'\n"
            )
            assert {await bench.text("pid") for _ in range(5)} < set(map(str, bench.skills.pool.list_pids()))
            assert await bench.text("chatty") == "x"
            bench.hub.core.pipeline.timeout = 1.0  # for this call alone: the others have to succeed
            assert await bench.text("busy") == "Tool execution timed out"

    uvloop.run(calls())


@asynchronous
async def test_unsolicited_messages_are_dropped(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "flood",
            """
            import threading

            def forge(ctx):
                ctx._is_over = False
                for _ in range(1000):
                    ctx._sent("progress", {"value": 1, "total": None, "message": None})

            def run(args, ctx):
                thread = threading.Thread(target=forge, args=(ctx,))
                thread.start()
                if args["input"]:
                    thread.join()
                return "well"
            """,
        )
        for given in ("", "wait", "", "wait", ""):
            assert await bench.text("flood", input=given) == "well"


@asynchronous
async def test_one_principal_leaves_a_process_for_another(tmp_path: Path) -> None:
    program = Program("pid", "pid.py", PID.encode())
    async with workbench(tmp_path, limits=SkillLimits(processes=10)) as bench:
        pool, running, is_over = bench.skills.pool, Counter[str](), asyncio.Event()

        async def hold(principal: str) -> None:
            async with pool.process(program, principal):
                running[principal] += 1
                await is_over.wait()

        # Each call is its own task, as calls of clients are: a nested call would have additional slots.
        greedy = [asyncio.create_task(hold("greedy")) for _ in range(20)]
        await until(lambda: running["greedy"] == 9)
        other = asyncio.create_task(hold("other"))
        await until(lambda: running["other"] == 1)
        assert running["greedy"] == 9
        is_over.set()
        await asyncio.gather(*greedy, other)
        assert running == {"greedy": 20, "other": 1}


@asynchronous
async def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the directories should be")
    before = os.listdir("/dev/fd")
    with pytest.raises(FileExistsError):
        await Process.start(Program("pid", "pid.py", PID.encode()), SkillLimits(), tmp_path / "taken")
    assert os.listdir("/dev/fd") == before


def test_a_directory_that_cannot_be_locked_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_number: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    before = os.listdir("/dev/fd")
    with pytest.raises(OSError, match="No locks available"):
        Scratch(tmp_path)
    assert os.listdir("/dev/fd") == before
    assert os.listdir(tmp_path) == []
