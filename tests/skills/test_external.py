"""An external skill may start programs, with the limits, the confinement and the lifetime of the skill."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.cli.shell import serving, waypost
from tests.contract.conftest import asynchronous
from tests.skills.workbench import Workbench, has_landlock, is_running, until, workbench
from waypost.policy.rules import Rule
from waypost.settings import SkillLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a whole tree of processes")

DAEMON = 'subprocess.Popen(["sh", "-c", "setsid sleep 1000 & echo $!"], stdout=-1).stdout.readline().decode()'
"""Starts a process that leaves the process group and whose parent ends; its number."""


async def load(bench: Workbench, body: str, head: str = "external = True") -> None:
    """An external skill."""
    await bench.load("tool", f"{head}\nimport os, subprocess\n\ndef run(args):\n{indent(dedent(body), '    ')}\n")


@asynchronous
async def test_a_program_runs_and_answers(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await load(bench, "return subprocess.run(['echo', args['input']], capture_output=True, text=True).stdout")
        assert await bench.text("tool", input="hi") == "hi\n"
        (pid,) = bench.skills.pool.list_pids()
        assert await bench.text("tool", input="again") == "again\n"
        assert bench.skills.pool.list_pids() == [pid]  # a call without leftover children keeps its process


@pytest.mark.parametrize(
    "line",
    [
        "os.system('exit 3')",
        "os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 3'], {}), 0)[1])",
        "subprocess.run(['sleep', '1000'], timeout=0.1)",
        "__import__('asyncio').run(__import__('asyncio').create_subprocess_exec('true'))",
    ],
)
@asynchronous
async def test_programs_are_started_and_stopped_in_all_ways_but_forks(tmp_path: Path, line: str) -> None:
    async with workbench(tmp_path) as bench:
        await load(bench, f"return str({line})")
        assert "PermissionError" not in await bench.text("tool")


@pytest.mark.parametrize("line", ["os.fork()", "os.execv('/bin/true', ['true'])", "__import__('pty').spawn('true')"])
@asynchronous
async def test_the_process_of_a_skill_is_neither_copied_nor_replaced(tmp_path: Path, line: str) -> None:
    async with workbench(tmp_path) as bench:
        await load(bench, line)
        assert "may not copy or replace its process; start a program with subprocess" in await bench.text("tool")


@asynchronous
async def test_other_skills_cannot_start_programs_and_the_error_names_the_declaration(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        for line in (
            "shutil.os.system('true')",
            "shutil.os.fork()",
            "shutil.os.posix_spawn('/bin/true', ['true'], {})",
        ):
            await bench.load("tool", f"import shutil\nversion = {line!r}\ndef run(args):\n    {line}\n")
            assert "may not start other processes, unless it declares external = True" in await bench.text("tool")


@asynchronous
async def test_programs_left_running_end_with_their_call(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await load(bench, f"return {DAEMON}")
        pid = int(await bench.text("tool"))
        await until(lambda: not is_running(pid))
        assert int(await bench.text("tool")) != pid


@pytest.mark.parametrize(
    "ending",
    ["os._exit(3)", "os.kill(os.getpid(), 9)", "subprocess.run(['sleep', '1000'])"],
    ids=["exit", "kill", "time"],
)
@asynchronous
async def test_the_process_tree_ends_with_any_end_of_the_skill(tmp_path: Path, ending: str) -> None:
    async with workbench(tmp_path) as bench:
        patience = bench.hub.core.pipeline.timeout
        await bench.load(
            "tool",
            "external = True\npermissions = ['state_read', 'state_write']\nimport os, subprocess\n\n"
            "def run(args, ctx):\n    if args['input']:\n        return ctx.state_get('pid')\n"
            f"    ctx.state_put('pid', {DAEMON})\n    {ending}\n",
        )
        bench.hub.core.pipeline.timeout = 3.0 if "sleep" in ending else patience
        assert (await bench.call("tool"))["isError"]
        bench.hub.core.pipeline.timeout = patience
        pid = int(await bench.text("tool", input="which?"))
        await until(lambda: not is_running(pid))


@asynchronous
async def test_too_many_processes_end_the_skill(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(children=3)) as bench:
        await load(bench, "all = [subprocess.Popen(['sleep', '1000']) for _ in range(int(args['input']))]\n"
                          "try:\n    all[0].wait(2)\nexcept subprocess.TimeoutExpired:\n    return 'fine'")  # fmt: skip
        assert await bench.text("tool", input="3") == "fine"
        assert "it had more than 3 other processes (skills.limits.children)" in await bench.text("tool", input="4")


@asynchronous
async def test_programs_have_the_limits_of_the_skill(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(memory_bytes=256 * 1024**2, cpu_seconds=7)) as bench:
        await load(
            bench,
            "return subprocess.check_output(['sh', '-c', 'ulimit -v; ulimit -t; ulimit -n'], text=True)",
        )
        memory, cpu, files = map(int, (await bench.text("tool")).split())
        assert (memory, files) == (256 * 1024, 64)
        assert 7 <= cpu <= 8


@pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")
@asynchronous
async def test_programs_are_confined_like_the_skill(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "secret.txt").write_text("another's")
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with workbench(tmp_path / "skills") as bench:
            await load(bench, "words = args['input'].split('|')\n"
                              "ended = subprocess.run(words, capture_output=True, text=True)\n"
                              "return ended.stdout + ended.stderr + str(ended.returncode)")  # fmt: skip
            for command in (
                f"cat|{tmp_path}/secret.txt",
                f"cat|/proc/{os.getpid()}/environ",
                f"sh|-c|echo > {tmp_path}/new",
                "sh|-c|cp /bin/true here && ./here",
                f"{sys.executable}|-c|{code}|{server.getsockname()[1]}",
                f"sh|-c|kill -9 {os.getpid()}",
            ):
                said = await bench.text("tool", input=command)
                assert "denied" in said or "not permitted" in said, (command, said)


@asynchronous
async def test_a_skill_without_network_permission_cannot_start_programs(tmp_path: Path) -> None:
    rule = Rule(name="offline", type="permission_override", config={"permission": "web_read"})
    async with workbench(tmp_path, policies=[rule]) as bench:
        await load(bench, "os.system('true')", "external = True\npermissions = ['web_read']")
        assert "may not start other processes while it may not use the network" in await bench.text("tool")


def test_the_tree_ends_with_a_hub_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(
        'version: "1"\nserver: {name: desk, port: 0, surface: full}\nskills: {dynamic: skills}\n'
    )
    (tmp_path / "skills").mkdir()
    source = (
        "external = True\nimport subprocess\n\n"
        f"def run(args):\n    print({DAEMON}, flush=True)\n    subprocess.run(['sleep', '1000'])\n"
    )
    (tmp_path / "skills" / "stays.py").write_text(source)
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        url = hub.url
        threading.Thread(
            target=waypost, args=("call", url, "skill:stays"), kwargs={"cwd": tmp_path}, daemon=True
        ).start()
        pid = int(re.findall(r"skill stays: (\d+)", hub.wait_for("skill stays: "))[0])
        assert is_running(pid)
        hub.signal(signal.SIGKILL)
        hub.wait()

    asyncio.run(asyncio.wait_for(until(lambda: not is_running(pid)), 60))
