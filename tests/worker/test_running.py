"""Programs of workers: with a loop, without one, and with `await` at their top level."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import serving
from tests.ports import free_port
from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import AT_ONCE, failure, settled, threaded, working
from tests.workers.wire import address, at_work, hub_for_workers
from waypost.testing import TestClient
from waypost.worker import InvocationFailed, register_worker

PROGRAM = """\
from waypost.worker import register_worker
iii = register_worker('ws://localhost:PORT')
@iii.register_function('demo::guide')
async def guide(_input):
    return {'content': '# Demo guide\\n\\nThe long-form docs for the demo worker.'}
@iii.register_function('demo::greet_prompt')
async def greet_prompt(input):
    name = input.get('name', 'world')
    return {'content': f'Greet {name} warmly.'}
await iii.trigger(
    function_id='skills::register',
    payload={
        'id': 'demo',
        'skill': '# demo\\n\\nA demo worker.\\n\\nSee [`guide`](iii://demo/demo::guide) for the long version.\\n',
    },
)
await iii.trigger(
    function_id='prompts::register',
    payload={
        'name': 'greet',
        'description': 'Compose a greeting.',
        'arguments': [{'name': 'name', 'description': 'Who to greet', 'required': True}],
        'function_id': 'demo::greet_prompt',
    },
)
"""
INSIDE = "import asyncio\nasync def main():\n" + "".join(f"    {line}\n" for line in PROGRAM.splitlines())
THREADED = PROGRAM.replace("await iii.trigger(", "iii.trigger(").replace("    },\n)\n", "    },\n).result()\n")


@asynccontextmanager
async def program(text: str, port: str, folder: Path, *launcher: str) -> AsyncIterator[Process]:
    """A program that runs until the block ends."""
    file = folder / "demo.py"
    file.write_text(text.replace("PORT", port))
    process = await asyncio.create_subprocess_exec(sys.executable, *launcher, str(file), stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def check_demo(client: TestClient) -> None:
    """Check what clients of the hub see of the worker."""
    assert (await client.read_resource("iii://demo"))["contents"][0]["text"].startswith("# demo\n\nA demo worker.")
    guide = (await client.read_resource("iii://fn/demo/guide"))["contents"][0]
    assert (guide["mimeType"], guide["text"].splitlines()[0]) == ("text/markdown", "# Demo guide")
    prompt = await client.get_prompt("greet", {"name": "Ada"})
    assert prompt["messages"] == [{"role": "user", "content": {"type": "text", "text": "Greet Ada warmly."}}]


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        (PROGRAM, ("-m", "waypost.worker")),
        (INSIDE + "    print('ready', flush=True)\n    await iii.closed()\nasyncio.run(main())\n", ()),
        (THREADED + "iii.closed().result()\n", ()),
    ],
    ids=["await at the top level", "in a loop", "in a thread"],
)
@asynchronous
async def test_the_example_runs_with_one_import_changed(text: str, launcher: tuple[str, ...], tmp_path: Path) -> None:
    hub = hub_for_workers()
    port = ""
    async with at_work(hub) as client:
        port = address(hub).rpartition(":")[2]
        async with program(text, port, tmp_path, *launcher) as process:
            prompts: list[Any] = []
            while "greet" not in prompts:
                assert process.returncode is None, await process.communicate()
                prompts = [prompt["name"] for prompt in (await client.request("prompts/list"))["prompts"]]
            await check_demo(client)
            process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
            assert process.returncode == (0 if launcher else -signal.SIGINT), errors.decode()
        await until(lambda: hub.workers.connected == [])


@pytest.mark.parametrize(
    ("arguments", "code", "received"),
    [([], 2, "usage:"), (["-h"], 0, "usage:"), (["nowhere.py"], 1, "nowhere.py cannot be read"), (["bad.py"], 1, "oh")],
)
def test_a_program_that_cannot_run_is_reported(arguments: list[str], code: int, received: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import asyncio\nawait asyncio.Event().wait() if 0 else None\nraise ValueError('oh')\n"
    )
    command = [sys.executable, "-m", "waypost.worker", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == code
    assert received in done.stderr


@asynchronous
async def test_without_a_loop_a_worker_has_a_thread_and_answers_are_waited_for() -> None:
    hub = hub_for_workers()

    def plain_program(url: str) -> list[Any]:
        with threaded(url, name="plain") as iii:
            iii.register_function("a::b", lambda payload: [payload, iii.trigger("a::c").result()])
            iii.register_function("a::c", lambda: "c")
            came_to = [iii.trigger("a::b", 1).result(60), iii.publish_skill("demo", "# demo").result(10)]
            try:
                iii.trigger("a::nobody").result(60)
            except InvocationFailed as error:
                came_to.append(error.code)
        iii.shutdown().result(60)
        with pytest.raises(InvocationFailed, match="shut down"):
            iii.trigger("a::b")
        return came_to

    async with at_work(hub):
        came_to = await asyncio.to_thread(plain_program, address(hub))
        assert came_to == [[1, "c"], True, "function_not_found"]
        await until(lambda: hub.workers.connected == [])


@asynchronous
async def test_a_worker_of_a_thread_is_used_from_any_loop() -> None:
    hub = hub_for_workers()
    async with at_work(hub):
        worker = await asyncio.to_thread(register_worker, address(hub), name="threaded")

        @worker.register_function("a::b")
        async def loop_id(payload: Any) -> int:
            return id(asyncio.get_running_loop())

        assert await worker.trigger("a::b") != id(asyncio.get_running_loop())
        assert (await failure(worker.trigger("a::c"))).code == "function_not_found"
        await worker.shutdown()


@asynchronous
async def test_a_worker_does_not_wait_for_itself() -> None:
    hub = hub_for_workers()
    async with at_work(hub), working(hub) as worker:
        worker.register_function("a::b", lambda: 1)
        answer = worker.trigger("a::b")
        with pytest.raises(RuntimeError, match="await the answer"):
            answer.result()
        assert await answer == 1
        assert answer.result() == 1


@asynchronous
async def test_a_worker_outlives_a_hub_that_is_killed_and_finds_the_next_one(tmp_path: Path) -> None:
    port = free_port()
    config = f'version: "1"\nserver: {{name: desk, port: 0}}\nworkers: {{port: {port}}}\n'
    (tmp_path / "waypost.yaml").write_text(config)
    worker = register_worker(f"ws://127.0.0.1:{port}", name="one", reconnecting=AT_ONCE)
    worker.register_function("a::b", lambda payload: [payload])
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        await worker.publish_skill("demo", "# demo")
        assert await worker.trigger("a::b", 1) == [1]
        hub.process.kill()
        await asyncio.to_thread(hub.wait)
    call = worker.trigger("a::b", 2)
    with serving("waypost.yaml", cwd=tmp_path):
        assert await call == [2]
        await settled(worker)
        assert [one["id"] for one in (await worker.trigger("skills::list"))["skills"]] == ["demo"]
        await worker.shutdown()
