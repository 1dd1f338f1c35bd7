"""A worker with the Python SDK, which gets its commands as lines of JSON; it answers in lines of JSON.

It connects to the address that is its only argument. What its functions are called with and what its triggers are
bound to comes out as events between the answers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from iii import (
    InitOptions,
    InvocationError,
    ObserveRejection,
    TriggerAction,
    register_worker,
)
from iii.helpers import create_channel_async
from iii.triggers import TriggerHandler
from iii_helpers.http import HttpInvocationConfig

warnings.simplefilter("ignore")
logs: list[str] = []
writing = threading.Lock()


class Kept(logging.Handler):
    """Records the warnings and errors of the SDK."""

    def emit(self, record: logging.LogRecord) -> None:
        logs.append(f"{record.levelname}: {record.getMessage()}")


logging.getLogger().addHandler(Kept(logging.WARNING))
options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else None
client = register_worker(sys.argv[1], InitOptions(**options) if options else None)
refs: dict[str, Any] = {}


def say(**message: Any) -> None:
    """Write a line."""
    with writing:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def handler(name: str, behaviour: str, gives: Any = None) -> Any:
    """A handler with the given behaviour."""

    async def run(data: Any, metadata: Any = None) -> Any:
        say(event="called", function=name, data=None if behaviour in ("size", "read") else data, metadata=metadata)
        if behaviour == "fail":
            raise ValueError("it went wrong")
        if behaviour == "hang":
            await asyncio.Event().wait()
        if behaviour == "give":
            return gives
        if behaviour == "relay":
            return {"relayed": await client.trigger_async(data)}
        if behaviour == "nan":
            return [float("nan"), "\ud800"]
        if behaviour == "read":
            return {"bytes": len(await data["reader"].read_all())}
        return {"echo": data, "metadata": metadata, "null": None, "size": len(data) if behaviour == "size" else 0}

    return run


class Ticks(TriggerHandler):  # type: ignore[misc]
    """Provides a kind of trigger, and refuses bindings that ask for it."""

    async def register_trigger(self, config: Any) -> None:
        if isinstance(config.config, dict) and config.config.get("refuse"):
            raise ValueError("such a binding is refused")
        say(event="bound", id=config.id, function=config.function_id, config=config.config)

    async def unregister_trigger(self, config: Any) -> None:
        say(event="unbound", id=config.id)


def trigger(request: dict[str, Any]) -> Any:
    """Call a function."""
    actions = {"void": TriggerAction.Void(), "enqueue": TriggerAction.Enqueue(queue="jobs")}
    if "action" in request:
        request["action"] = actions[request["action"]]
    size = request.pop("size", 0)
    if size:
        request["payload"] = "x" * size
    answer = client.trigger(request)
    return {"length": len(json.dumps(answer))} if size > 100_000 else answer


async def stream(size: int) -> Any:
    """Send bytes to a function through a channel."""
    channel = await create_channel_async(client, 64)
    reading = asyncio.ensure_future(
        client.trigger_async({"function_id": "peer::read", "payload": {"reader": channel.reader_ref.model_dump()}})
    )
    await channel.writer.write(b"x" * size)
    await channel.writer.close_async()
    return await reading


def observe() -> Any:
    """Register an observer and return its error code, if any."""
    try:
        client.observe({"function_id": "peer::echo"}, "peer::seen").ready(timeout=60)
    except ObserveRejection as error:
        return {"code": error.code}
    return {"code": None}


def do(op: str, **given: Any) -> Any:
    """Execute a command."""
    if op == "function":
        formats = {key: given[key] for key in ("request_format", "description", "metadata") if key in given}
        refs[given["id"]] = client.register_function(
            given["id"], handler(given["id"], given.get("behaviour", "echo"), given.get("gives")), **formats
        )
    elif op == "outside":
        refs[given["id"]] = client.register_function(given["id"], HttpInvocationConfig(**given["place"]))
    elif op in ("unfunction", "unbind"):
        refs.pop(given["id"]).unregister()
    elif op == "trigger":
        return trigger(given["request"])
    elif op == "type":
        client.register_trigger_type({"id": given["id"], "description": "Ticks"}, Ticks())
    elif op == "bind":
        refs[given["id"]] = client.register_trigger(given["request"])
    elif op == "stream":
        return asyncio.run_coroutine_threadsafe(stream(given["size"]), client._loop).result(60)
    elif op == "observe":
        return observe()
    elif op == "logs":
        return logs
    elif op == "wait_for_log":
        deadline = time.monotonic() + 60
        while not any(given["text"] in line for line in logs) and time.monotonic() < deadline:
            time.sleep(0.01)
        return logs
    return None


def answer(line: str) -> None:
    """Execute a command and write its result."""
    asked = json.loads(line)
    number = asked.pop("number")
    try:
        say(number=number, ok=do(**asked))
    except InvocationError as error:
        say(number=number, error={"code": error.code, "message": error.message})
    except Exception as error:
        say(number=number, error={"code": type(error).__name__, "message": str(error)})


say(event="ready")
with ThreadPoolExecutor(32) as pool:
    for line in sys.stdin:
        pool.submit(answer, line)
    client.shutdown()
