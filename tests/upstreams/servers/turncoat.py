"""A server of the session era that reads its tools from a file, which may change at any time.

Its argument is a folder: `tools.json` holds the definitions, a file `endless` lets their list never end, and each start
of the process adds a line to `notes`. The tool `change` writes its argument `tools` into the file and says that they
changed; `flood` says so 500 times; `slow` reports progress and then waits to be cancelled; `key` returns the `_meta` it
was called with; every other tool answers with blocks of many kinds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
BLOCKS = [
    {"type": "text", "text": "plain"},
    {"type": "text", "text": "marked", "annotations": {"priority": 0.5}},
    {"type": "image", "data": "ZG90", "mimeType": "image/png"},
    {"type": "hologram", "of": "a thing nobody knows"},
]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    with (FOLDER / "notes").open("a") as file:
        file.write(text + "\n")


def call(request_id: int, name: str, given: dict[str, Any], meta: dict[str, Any]) -> None:
    if name == "change":
        (FOLDER / "tools.json").write_text(json.dumps(given["tools"]))
        say({"method": "notifications/tools/list_changed"})
        say({"id": request_id, "result": {"content": []}})
    elif name == "slow":
        for step in (1, 2):
            outcome = {
                "progressToken": meta.get("progressToken"),
                "progress": step,
                "total": 2,
                "message": f"step {step}",
            }
            say({"method": "notifications/progress", "params": outcome})
        if given.get("ends"):
            say({"id": request_id, "result": {"content": []}})
    elif name == "flood":
        for _ in range(500):
            say({"method": "notifications/tools/list_changed"})
        say({"id": request_id, "result": {"content": []}})
    elif name == "key":
        say({"id": request_id, "result": {"content": [], "structuredContent": meta}})
    elif name == "refuse":
        say({"id": request_id, "error": {"code": -32602, "message": f"Not with {os.environ.get('SECRET')}."}})
    else:
        answer = {"content": BLOCKS, "structuredContent": {"tool": name}, "isError": True, "_meta": {"its/own": 1}}
        say({"id": request_id, "result": answer})


def answer(message: dict[str, Any]) -> None:
    method, request_id, params = message.get("method"), message.get("id", 0), message.get("params", {})
    if method == "initialize":
        info = {"name": "turncoat", "version": "1"}
        say({"id": request_id, "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}})
    elif method == "server/discover":
        say({"id": request_id, "error": {"code": -32602, "message": "Received before initialization."}})
    elif method == "tools/list":
        note("listed")
        listed = {"tools": json.loads((FOLDER / "tools.json").read_text())}
        say({"id": request_id, "result": listed | ({"nextCursor": "on"} if (FOLDER / "endless").exists() else {})})
    elif method == "tools/call":
        call(request_id, params["name"], params["arguments"], params.get("_meta", {}))
    elif method == "notifications/cancelled":
        note("cancelled")


def main() -> None:
    note(f"started {os.getpid()}")
    for line in sys.stdin:
        answer(json.loads(line))


main()
