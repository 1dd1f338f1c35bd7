"""A hostile MCP server on standard streams: `python upstream.py SEED`; it offers and answers what costs most."""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from tests.hostile.payloads import hostile_schema


def main() -> None:
    """Serve until the input ends."""
    chance = random.Random(int(sys.argv[1]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message, chance)


def say(value: Any) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def note(method: str, params: Any) -> None:
    """Write a notification."""
    say({"jsonrpc": "2.0", "method": method, "params": params})


def answer(message: dict[str, Any], chance: random.Random) -> None:
    """Answer a request, truly or not."""
    method = message["method"]
    if method == "initialize":
        about = {
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "bad", "version": "1"},
        }
        result: Any = {"protocolVersion": message["params"]["protocolVersion"], **about}
    elif method == "tools/list":
        tools = [
            {"name": f"t{n}", "description": "d" * 2_000, "inputSchema": hostile_schema(chance)} for n in range(30)
        ]
        steady = [
            {"name": name, "inputSchema": {"type": "object"}}
            for name in ("flood", "huge", "silent", "broken", "shower")
        ]
        result = {"tools": [*steady, *tools]}
    elif method == "tools/call":
        result = call(message, chance)
    else:
        result = {}
    if result is not None:
        say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def call(message: dict[str, Any], chance: random.Random) -> Any:
    """Answer a call with floods, huge results, silence or garbage."""
    name = message["params"]["name"]
    token = message["params"].get("_meta", {}).get("progressToken", "p")
    if name == "flood":
        for number in range(300):
            note("notifications/message", {"level": "error", "data": "x" * chance.choice((10, 5_000))})
            note("notifications/progress", {"progressToken": token, "progress": number})
    elif name == "shower":
        for _ in range(chance.choice((1, 50))):
            note("notifications/tools/list_changed", {})
    elif name == "huge":
        size = chance.choice((1_000, 1_000_000, 8_000_000))
        return {"content": [{"type": "text", "text": "h" * size}], "structuredContent": {"v": [size] * 1_000}}
    elif name == "silent":
        time.sleep(0.2)
        return None
    elif name == "broken":
        sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "resu' + "[" * 5_000 + "\n\x00\xff\n")
        sys.stdout.flush()
    return {"content": [{"type": "text", "text": "ok"}], "isError": bool(chance.randrange(2))}


if __name__ == "__main__":
    main()
