"""A server of the session era that misbehaves as its arguments say, and logs what it received in a file.

Its arguments are the file of the diary and any number of habits:
- when asked for its era: `crash-at-discover`, `ignore-discover`
- always: `silent`, `garbage`, `chatty`, `stubborn`, `with-child`, `crash`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

DIARY, HABITS = sys.argv[1], set(sys.argv[2:])


def note(text: str) -> None:
    with open(DIARY, "a") as diary:
        diary.write(text + "\n")


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def crash(given: dict[str, Any], request_id: int) -> None:
    os._exit(3)


def last_words(given: dict[str, Any], request_id: int) -> None:
    say({"id": request_id, "result": {"content": [{"type": "text", "text": "farewell"}]}})
    os._exit(0)


def flood(given: dict[str, Any], request_id: int) -> None:
    sys.stdout.write("{" + "x" * given["bytes"])
    sys.stdout.flush()


def babble(given: dict[str, Any], request_id: int) -> None:
    sys.stdout.write((json.dumps({"jsonrpc": "2.0", "method": "notifications/babble"}) + "\n") * given["lines"])
    say({"id": request_id, "result": {"content": []}})


def ping_me(given: dict[str, Any], request_id: int) -> None:
    say({"id": "p", "method": "ping"})
    say({"id": request_id, "result": {"structuredContent": json.loads(sys.stdin.readline())}})


def malform(given: dict[str, Any], request_id: int) -> None:
    malformed: list[dict[str, Any]] = [
        {"method": "notifications/cancelled", "params": {"requestId": []}},
        {"method": "notifications/message", "params": []},
        {"method": "notifications/resources/updated", "params": "text"},
    ]
    for message in malformed:
        say(message)
    say({"id": request_id, "result": {"content": []}})


def deafen(given: dict[str, Any], request_id: int) -> None:
    os.close(0)
    stop_reading(given, request_id)


def stop_reading(given: dict[str, Any], request_id: int) -> None:
    say({"id": request_id, "result": {"content": []}})
    time.sleep(60)


DEEDS = {
    "crash": crash,
    "last-words": last_words,
    "flood": flood,
    "babble": babble,
    "ping-me": ping_me,
    "malform": malform,
    "deafen": deafen,
    "stop-reading": stop_reading,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "nonsense": {"result": 5},
    "refuse": {"error": {"code": -32602, "message": "Not like this."}},
    "ask": {"result": {"resultType": "input_required", "inputRequests": {}}},
    "environment": {"result": {"structuredContent": dict(os.environ)}},
    "where": {"result": {"structuredContent": {"directory": os.getcwd()}}},
    "pid": {"result": {"structuredContent": {"pid": os.getpid()}}},
}
"""A tool that is not here never answers."""


def call(name: str, given: dict[str, Any], request_id: int) -> None:
    if name in DEEDS:
        DEEDS[name](given, request_id)
    elif name in ANSWERS:
        say({"id": request_id, **ANSWERS[name]})


def answer(message: dict[str, Any]) -> None:
    method, request_id = message.get("method"), message.get("id", 0)
    if method == "initialize":
        info = {"name": "rough", "version": "1"}
        say({"id": request_id, "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}})
    elif method == "server/discover":
        if "crash-at-discover" in HABITS:
            os._exit(1)
        if "ignore-discover" not in HABITS:
            say({"id": request_id, "error": {"code": -32602, "message": "Received before initialization."}})
    elif method == "tools/list":
        say({"id": request_id, "result": {"tools": [{"name": "crash", "inputSchema": {"type": "object"}}]}})
    elif method == "ping":
        say({"id": request_id, "result": {}})
    elif method == "tools/call":
        call(message["params"]["name"], message["params"]["arguments"], request_id)


def main() -> None:
    if "crash" in HABITS:
        sys.exit(7)
    if "stubborn" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "with-child" in HABITS:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        note(f"child {child.pid}")
    note(f"started {os.getpid()}")
    if "chatty" in HABITS:
        sys.stdout.write("Welcome to the server!\n\n[1, 2\n")
        sys.stderr.write("a remark " + "x" * 5000 + "\n")
    for line in sys.stdin:
        message = json.loads(line)
        note(f"{message.get('method', 'answer')} {json.dumps(message.get('params', {}))}")
        if "garbage" in HABITS:
            sys.stdout.write("\x00\xff garbage }{\n{not json}\n")
            sys.stdout.flush()
        elif "silent" not in HABITS:
            answer(message)
    if "stubborn" in HABITS:
        time.sleep(60)


main()
