"""A person at Codex: starts its app server, gives it two prompts in one conversation, and accepts what it asks.

`codex exec` declines every question, because it has no user to ask.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import IO, Any

Json = dict[str, Any]
ANSWER = {"colour": "blue"}
PROMPTS = ("Go on.", "Is there anything new?")


class Person:
    """Speaks with an app server, one JSON message a line."""

    def __init__(self, given: IO[str], said: IO[str]) -> None:
        self._given = given
        self._said = said
        self._ids = itertools.count(1)

    def ask(self, method: str, params: Json) -> Json:
        """Send a request and return its result."""
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        return self._read(lambda message: message.get("id") == number and "method" not in message)

    def wait_for(self, method: str) -> None:
        """Wait for a notification."""
        self._read(lambda message: message.get("method") == method)

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"method": method})

    def _read(self, is_wanted: Any) -> Json:
        for line in self._said:
            sys.stdout.write(line)
            message: Json = json.loads(line)
            if "id" in message and "method" in message:
                self._answer(message)
            if is_wanted(message):
                return dict(message.get("result", {}))
        raise EOFError("The app server has ended.")

    def _answer(self, message: Json) -> None:
        """Accept a question, with the fields that it has; a tool's approval has none."""
        fields = message["params"].get("requestedSchema", {}).get("properties", {})
        content = {name: value for name, value in ANSWER.items() if name in fields}
        self._send({"id": message["id"], "result": {"action": "accept", "content": content}})

    def _send(self, message: Json) -> None:
        self._given.write(json.dumps(message) + "\n")
        self._given.flush()


def main(command: list[str]) -> None:
    """Have the conversation with the app server that a command starts."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        person = Person(process.stdin, process.stdout)
        person.ask("initialize", {"clientInfo": {"name": "person", "title": "Person", "version": "1"}})
        person.notify("initialized")
        thread = person.ask("thread/start", {"model": "scripted", "modelProvider": "scripted"})["thread"]["id"]
        for prompt in PROMPTS:
            person.ask("turn/start", {"threadId": thread, "input": [{"type": "text", "text": prompt}]})
            person.wait_for("turn/completed")
        process.stdin.close()
        process.wait(20)


if __name__ == "__main__":
    main(sys.argv[1:])
