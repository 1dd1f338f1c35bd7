"""A dynamic skill runs in its own process, where a failure affects one call."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from tests.skills.workbench import ECHO, Workbench, has_landlock, is_running, scratch_directories, until, workbench
from waypost.settings import SkillLimits

TIMED_OUT = "Tool execution timed out"


async def crash_of(bench: Workbench, source: str) -> str:
    """The error of a skill, after which another call works."""
    await bench.load("bad", source)
    answer = await bench.call("bad")
    assert answer["isError"], answer
    await bench.load("after", ECHO)
    assert await bench.text("after", input="well") == "well"
    return str(answer["content"][0]["text"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('lost')", "Tool crashed: KeyError: 'lost'"),
        ("class OwnError(Exception): pass\n    raise OwnError('mine')", "Tool crashed: OwnError: mine"),
        ("raise SystemExit(3)", "Tool crashed: SystemExit: 3"),
        ("import os; os._exit(3)", "Tool crashed: ProcessEnded: the skill's process ended: exit code 3"),
        ("import os; os.kill(os.getpid(), 9)",
         "Tool crashed: ProcessEnded: the skill's process ended: killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)",
         "Tool crashed: ProcessEnded: the skill's process ended: killed by SIGSEGV"),
        ("import os; os.closerange(3, 60); return 1", "Tool crashed: "),
        ("return bytearray(10 ** 10)", "Tool crashed: MemoryError: the skill reached its memory limit of 512 MiB"),
        ("return object()", "Tool crashed: TypeError: the skill returned a value that cannot be sent as JSON"),
        ("return {(1, 2): 3}", "Tool crashed: TypeError: the skill returned a value that cannot be sent as JSON"),
        ("return '\\ud800'", "Tool crashed: TypeError: the skill returned a value that cannot be sent as JSON"),
        ("x = []; x.append(x); return x",
         "Tool crashed: TypeError: the skill returned a value that cannot be sent as JSON"),
        ("return 'x' * (17 * 1024 ** 2)",
         "The skill's result takes 17,825,859 bytes, and skills.limits.resultBytes is 16,777,216."),
        ("return [open('/dev/null') for _ in range(100)]", "Tool crashed: OSError: [Errno 24] Too many open files"),
        ("open('big', 'wb').truncate(10 ** 9)", "Tool crashed: OSError: [Errno 27] File too large"),
        ("from waypost import ToolError\n    raise ToolError('That is not possible.')", "That is not possible."),
        ("class Bad(Exception):\n        def __str__(self): raise ValueError\n    raise Bad",
         "Tool crashed: Bad: an error that cannot be shown"),
    ],
)  # fmt: skip
@asynchronous
async def test_a_failure_is_named_and_affects_one_call(tmp_path: Path, body: str, said: str) -> None:
    async with workbench(tmp_path) as bench:
        assert (await crash_of(bench, f"def run(args):\n    {body}\n")).startswith(said)


@asynchronous
async def test_a_result_that_is_too_large_to_be_sent_is_handed_out_by_a_link(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("large", "def run(args):\n    return 'x' * (11 * 1024 ** 2)\n")
        answer = await bench.call("large")

    assert not answer.get("isError")
    assert [block["type"] for block in answer["content"]] == ["text", "resource_link"]


@asynchronous
async def test_the_traceback_is_in_the_log_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with workbench(tmp_path) as bench:
        outcome = await crash_of(bench, "def inner():\n    raise ValueError('no')\n\n\ndef run(args):\n    inner()\n")

    assert outcome == "Tool crashed: ValueError: no"
    assert 'File "bad.py", line 2, in inner\n    raise ValueError' in caplog.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import ctypes; ctypes.string_at(0)", "may not use ctypes"),
        ("import ctypes; ctypes.CDLL(None)", "may not use ctypes"),
        ("import ctypes; ctypes.pythonapi.Py_Exit", "may not use ctypes"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "only with the permission web_read"),
        ("import socket; socket.socket().bind(('127.0.0.1', 0))", "only with the permission web_read"),
        ("import socket; socket.getaddrinfo('localhost', 80)", "only with the permission web_read"),
        ("import socket; socket.socket(socket.AF_UNIX).connect('/x')", "only with the permission web_read"),
        ("import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))", "web_read"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", "web_read"),
        ("import os; os.kill(os.getppid(), 15)", "send signals to other processes"),
        ("import os; os.killpg(0, 15)", "send signals to other processes"),
        ("import os; open(f'/proc/{os.getppid()}/environ')", "look into other processes"),
        ("import resource as r; r.setrlimit(r.RLIMIT_CPU, (-1, -1))", "change the limits"),
    ],
)
@asynchronous
async def test_forbidden_operations_of_a_skill_are_refused(tmp_path: Path, line: str, said: str) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("bad", f"external = True\ndef run(args):\n    {line}\n")
        outcome = await bench.text("bad")

        assert outcome.startswith("Tool crashed: ")
        assert said in outcome


@asynchronous
async def test_the_network_is_open_to_those_with_the_permission(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with workbench(tmp_path) as bench:
            await bench.load(
                "fetch",
                """
                import socket
                external = True
                permissions = ["web_read"]

                def run(args):
                    with socket.create_connection(("127.0.0.1", args["config"]["port"])) as s:
                        return s.getpeername()[1]
                """,
            )
            port = server.getsockname()[1]
            assert await bench.value("fetch", config={"port": port}) == {"result": port}


@asynchronous
async def test_the_network_is_closed_while_a_skill_is_imported(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        source = "import socket\nexternal = True\npermissions = ['web_read']\nsocket.getaddrinfo('localhost', 80)\n"
        with pytest.raises(Exception, match="only with the permission web_read"):
            await bench.load("bad", source + ECHO)


@asynchronous
async def test_nothing_of_the_hub_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_SECRET", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    async with workbench(tmp_path) as bench:
        await bench.load(
            "look",
            """
            import os, sys
            external = True

            def run(args):
                mask = os.umask(0o077)
                return {
                    "env": dict(os.environ), "fds": sorted(map(int, os.listdir("/proc/self/fd"))), "cwd": os.getcwd(),
                    "files": os.listdir(), "group": os.getpgid(0) == os.getsid(0) == os.getppid(), "mask": mask,
                    "input": sys.stdin.read(), "argv": sys.argv, "waypost": "waypost" in sys.modules,
                    "path": "/somewhere" in sys.path,
                }
            """,
        )
        seen = await bench.value("look")
    os.close(kept)

    assert set(seen["env"]) <= {"PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR"}
    assert seen["env"]["LANG"] == "C.UTF-8"
    assert seen["cwd"] == seen["env"]["HOME"] != str(tmp_path)
    assert len(seen["fds"]) == 5  # stdin, the output twice, the socket, and the directory that is being listed
    assert seen["files"] == []
    assert seen["group"]  # of its supervisor
    assert seen["mask"] == 0o077
    assert (seen["input"], seen["argv"], seen["waypost"], seen["path"]) == ("", ["look.py"], False, False)


@asynchronous
async def test_a_deadline_kills_a_busy_skill(tmp_path: Path) -> None:
    async with workbench(tmp_path, timeout=0.5) as bench:
        await bench.load("busy", "def run(args):\n    while True: pass\n")
        (pid,) = bench.skills.pool.list_pids()

        assert await bench.text("busy") == TIMED_OUT
        await until(lambda: not is_running(pid))
        assert bench.skills.pool.list_pids() == []


# A way around the guard: a guard is not a sandbox, so there is a second line of defence.
AROUND = """
external = True
import importlib.util, os, time
from importlib.machinery import ExtensionFileLoader, BuiltinImporter
spec = importlib.util.find_spec("_posixsubprocess")
fresh = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fresh)

def run(args):
    reading, writing = os.pipe()
    child = fresh.fork_exec(
        [b"/bin/sleep", b"600"], [b"/bin/sleep"], True, (), None, None, -1, -1, -1, -1, -1, -1, reading, writing,
        True, False, -1, None, None, None, -1, lambda: time.sleep(600), False,
    )
    with open("notes", "w") as file:
        file.write(f"{child} {os.getpid()}\\n")
    while True:
        time.sleep(600)
"""


async def started_family(temporary: Path) -> list[int]:
    """The child and the parent, once both run, from the notes in the temporary directory of the process."""
    await until(lambda: len(_read(temporary)) == 2)
    family = _read(temporary)
    assert all(map(is_running, family))
    return family


def _read(temporary: Path) -> list[int]:
    text = "".join(notes.read_text() for notes in temporary.glob("*/notes"))
    return [int(pid) for pid in text.split()] if text.endswith("\n") else []


@asynchronous
async def test_a_deadline_kills_the_children_of_a_skill_too(tmp_path: Path) -> None:
    notes = tmp_path / "tmp"
    # The child has to be started within it.
    async with workbench(tmp_path / "skills", timeout=3.0, temporary=notes) as bench:
        await bench.load("parent", AROUND)
        call = asyncio.create_task(bench.text("parent"))
        family = await started_family(notes)

        assert await call == TIMED_OUT
        await until(lambda: not any(map(is_running, family)))


@asynchronous
async def test_a_cancelled_call_kills_the_skill_and_its_children(tmp_path: Path) -> None:
    notes = tmp_path / "tmp"
    async with workbench(tmp_path / "skills", temporary=notes) as bench:
        await bench.load("parent", AROUND)
        arguments = {"name": "skill:parent", "arguments": {}}
        answer = bench.client.send_request("mine", "tools/call", arguments)
        family = await started_family(notes)

        await bench.client.cancel("mine")
        await until(lambda: not any(map(is_running, family)))
        answer.cancel()


@asynchronous
async def test_processes_end_with_the_hub(tmp_path: Path) -> None:
    before = scratch_directories()
    async with workbench(tmp_path) as bench:
        await bench.load("one", ECHO)
        await bench.load("two", "def run(args):\n    open('kept', 'w').close()\n    return args['input']\n")
        await bench.text("two")
        pids = bench.skills.pool.list_pids()
        assert len(pids) == 2

    assert not any(map(is_running, pids))
    await until(lambda: scratch_directories() <= before)


HUB = """
import asyncio, sys
from pathlib import Path
from tests.skills.workbench import workbench

async def main():
    async with workbench(Path(sys.argv[1]), temporary=Path(sys.argv[2])) as bench:
        await bench.text("busy")

asyncio.run(main())
"""


@asynchronous
async def test_a_busy_process_ends_with_a_hub_that_is_killed(tmp_path: Path) -> None:
    directory, notes = tmp_path / "skills", tmp_path / "tmp"
    directory.mkdir()
    (directory / "busy.py").write_text(
        "import os\n\n"
        "def run(args):\n"
        "    with open('notes', 'w') as file:\n"
        "        file.write(f'{os.getpid()} {os.getppid()}\\n')\n"
        "    while True: pass\n"
    )
    hub = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HUB, str(directory), str(notes), env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    family = await started_family(notes)
    hub.kill()
    await hub.wait()

    await until(lambda: not any(map(is_running, family)))


@asynchronous
async def test_cpu_time_is_limited_for_each_call(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(cpu_seconds=1)) as bench:
        await bench.load("busy", "def run(args):\n    while True: pass\n")
        assert await bench.text("busy") == (
            "Tool crashed: ProcessEnded: the skill's process ended: it used up its CPU time of 1 s"
        )
        await bench.load(
            "brief",
            """
            import os, time

            def run(args):
                end = time.process_time() + 0.7
                while time.process_time() < end: pass
                return os.getpid()
            """,
        )
        assert len({await bench.text("brief") for _ in range(3)}) == 1


@asynchronous
async def test_a_skill_gets_less_of_a_busy_processor_than_the_hub(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("modest", "import os\n\n\ndef run(args):\n    return os.getpriority(os.PRIO_PROCESS, 0)\n")
        assert int(await bench.text("modest")) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)


@asynchronous
async def test_the_output_of_a_skill_is_logged_up_to_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "waypost.skills")
    async with workbench(tmp_path, limits=SkillLimits(output_bytes=1000)) as bench:
        await bench.load(
            "chatty",
            """
            import os, sys

            def run(args):
                print("to stdout", args["input"])
                print("to stderr", file=sys.stderr)
                os.write(1, b"\\xff raw without an end of line")
                return "quiet"
            """,
        )
        assert await bench.text("chatty", input="first") == "quiet"
        await bench.load("flood", "def run(args):\n    print('x' * 10 ** 7)\n    return 'quiet'\n")
        assert await bench.text("flood") == "quiet"

    lines = [record.getMessage() for record in caplog.records if record.name == "waypost.skills.processes"]
    assert lines[:2] == ["skill chatty: to stdout first", "skill chatty: to stderr"]
    assert "skill chatty: \N{REPLACEMENT CHARACTER} raw without an end of line" in lines
    assert lines.count("skill flood printed more than 1000 bytes in one call; the rest is dropped") == 1
    assert sum(len(line) for line in lines) < 2000


@asynchronous
async def test_invalid_data_on_the_socket_ends_only_the_process(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        for number, sent in enumerate(("b'\\xff' * 8", "(5).to_bytes(4, 'big') + b'{{{{{'", "b'\\0\\0\\0\\2{}'")):
            await bench.load(
                f"nonsense{number}",
                f"""
                import os, stat, time

                def run(args):
                    for number in range(3, 60):
                        try:
                            if stat.S_ISSOCK(os.fstat(number).st_mode):
                                os.write(number, {sent})
                        except OSError:
                            pass
                    time.sleep(600)
                """,
            )
            said = await bench.text(f"nonsense{number}")
            assert said.startswith("Tool crashed: ProcessEnded: the skill's process sent a message that cannot be read")


AROUND_THE_CHECKS = """
import os

def run(args):
    processes = os.open("/proc", os.O_RDONLY)
    number = os.open(f"{os.getppid()}/" + args["input"], os.O_RDONLY, dir_fd=processes)
    return len(os.read(number, 10)) if args["input"] == "environ" else number
"""


@pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")
@pytest.mark.parametrize("file", ["environ", "mem", "maps", "cmdline"])
@asynchronous
async def test_the_kernel_denies_a_skill_the_environment_and_memory_of_the_hub(tmp_path: Path, file: str) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("spy", AROUND_THE_CHECKS)

        assert (await bench.text("spy", input=file)).startswith("Tool crashed: PermissionError: [Errno 13]")


READS = "def run(args):\n    return open(args['input']).read()\n"


@pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")
@asynchronous
async def test_a_skill_can_read_only_its_folder(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "data.txt").write_text("its own")
    (tmp_path / "secret.txt").write_text("another's")
    async with workbench(tmp_path / "skills") as bench:
        await bench.load("reads", READS)

        assert await bench.text("reads", input=str(tmp_path / "skills" / "data.txt")) == "its own"
        for path in (str(tmp_path / "secret.txt"), "/etc/passwd", str(Path(__file__))):
            assert (await bench.text("reads", input=path)).startswith("Tool crashed: PermissionError: [Errno 13]")


@pytest.mark.skipif(not has_landlock(), reason="the kernel has no Landlock")
@asynchronous
async def test_a_skill_can_write_only_into_its_temporary_directory(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "writes", "def run(args):\n    with open(args['input'], 'w') as file:\n        return file.write('abc')\n"
        )

        assert await bench.value("writes", input="here.txt") == {"result": 3}
        for path in (str(tmp_path / "writes.py"), str(tmp_path / "new.py"), str(tmp_path.parent / "new")):
            assert (await bench.text("writes", input=path)).startswith("Tool crashed: PermissionError: [Errno 13]")


@asynchronous
async def test_directories_that_a_killed_hub_left_are_removed_at_the_next_start(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    left = temporary / "waypost-skill-left"
    (left / "inner").mkdir(parents=True)
    (temporary / "another").mkdir()
    async with workbench(tmp_path / "skills", temporary=temporary) as bench:
        await bench.load("where", "import os\n\ndef run(args):\n    return os.getcwd()\n")
        used = Path(await bench.text("where"))

        assert used.parent == temporary
        assert left.name not in os.listdir(temporary)
        async with workbench(tmp_path / "skills", temporary=temporary):
            assert set(os.listdir(temporary)) >= {used.name, "another"}
