"""A hub is killed in the middle of every kind of write; whatever it answered before is there when it is back.

Sessions, tasks, workflow instances and definitions, documents, keys and the audit are written at the same time, and the
configuration is reloaded meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.chaos.conftest import rounds
from tests.chaos.test_hub_killed import check, kill
from tests.cli.shell import Serving, serving
from tests.fuzz.hub_under_test import ADMIN, ALICE, HubUnderTest, build_hub
from tests.fuzz.senders import Answer, Gone, HttpSender, Silent, http_request, rpc
from tests.fuzz.test_messages import session_headers, stateless_headers
from waypost.protocol.tasks import MAX_TTL_MS, TASKS_EXTENSION
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2025_11_25, V2026_07_28

ROUNDS: Final = 3
MOST_ACKNOWLEDGED: Final = 150
MAX_START_CPU_S: Final = 2.5
"""CPU time from the start to the first request: about 1 s, up to 1.6 s beside programs that share the cores."""
MAX_SLOWER: Final = 2.0
"""How many times longer than a new hub at the same moment, where that takes long as well."""
SAMPLED: Final = 60
"""How much of the earlier rounds is looked at again."""
TASK_TTL_S: Final = MAX_TTL_MS / 1000
"""A long run outlives the tasks of its first rounds."""
pytestmark = pytest.mark.timeout(120 + 20 * rounds(ROUNDS))

FIELDS: Final = {
    "initialState": "a",
    "states": {"a": {"transitions": {"go": {"target": "b"}}}, "b": {"terminal": True}},
}


WORK: Final = '''

class Work(Toolkit):
    """Tasks."""

    @tool(task="required")
    async def work(self, text: str) -> str:
        """Say it again, as a task."""
        return text
'''


def build_lasting_hub(folder: Path, more: str = "") -> None:
    """Write the files of a hub with tasks, whose sessions do not expire soon."""
    file = build_hub(folder, more=more)
    file.write_text(file.read_text().replace("sessionIdleMs: 2000", "sessionIdleMs: 7200000"))
    with (folder / "tools.py").open("a") as tools:
        tools.write(WORK)


class Fact(NamedTuple):
    """A write that a hub acknowledged: kind, id, and a value from the answer."""

    kind: str
    id: str
    value: str = ""
    at: float = 0.0


class Client:
    """One connection, and the writes acknowledged on it."""

    def __init__(self, port: int, name: str, facts: list[Fact]) -> None:
        self.name = name
        self._port = port
        self._sender = HttpSender(port)
        self._facts = facts

    def note(self, kind: str, id: str, value: str = "") -> None:
        """Record a write that the hub acknowledged."""
        self._facts.append(Fact(kind, id, value, time.monotonic()))

    def operate(self, method: str, path: str, body: Any = None) -> Answer:
        """A request of the operator to the HTTP API."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        data = b"" if body is None else json.dumps(body).encode()
        return self._sender.send([http_request(method, f"/api/v1/{path}", headers, data, self._port)])[0]

    def ask(self, method: str, params: dict[str, Any], key: str = ALICE) -> Answer:
        """A stateless request."""
        able: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}
        body = rpc(method, {**params, "_meta": {PROTOCOL_VERSION: V2026_07_28, CLIENT_CAPABILITIES: able}})
        headers = stateless_headers(key, method, params.get("name") or params.get("taskId"))
        return self._sender.send([http_request("POST", "/mcp", headers, body, self._port)])[0]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a call, without a session."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = json.loads(answer.body)["result"]
        return result

    def open_session(self) -> str:
        """The id of a new session."""
        about = {"protocolVersion": V2025_11_25, "capabilities": {}, "clientInfo": {"name": "chaos", "version": "1"}}
        self._sender.send([http_request("POST", "/mcp", session_headers(ALICE), rpc("initialize", about), self._port)])
        found = re.search(rb"mcp-session-id: (\S+)", self._sender.heads[0], re.IGNORECASE)
        assert found, self._sender.answered
        return found[1].decode()

    def ping(self, session: str) -> int:
        """The status of a request in a session."""
        headers = session_headers(ALICE, session)
        return self._sender.send([http_request("POST", "/mcp", headers, rpc("ping", {}), self._port)])[0].status

    def leave(self, session: str) -> int:
        """End a session; the status."""
        headers = session_headers(ALICE, session)
        return self._sender.send([http_request("DELETE", "/mcp", headers, b"", self._port)])[0].status

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()


def write_sessions(client: Client) -> None:
    """Open sessions, and end every third."""
    for number in count():
        session = client.open_session()
        client.note("session", session)
        if number % 3 == 0:
            client.note("ending", session)
            assert client.leave(session) == 204
            client.note("ended", session)


def write_tasks(client: Client) -> None:
    """Start tasks; from then on each is found, finished or failed."""
    for number in count():
        result = client.call("work", {"text": f"{client.name}-{number}"})
        client.note("task", result["taskId"], f"{client.name}-{number}")


def write_instances(client: Client) -> None:
    """Start instances and move each once."""
    while True:
        stands = client.call("workflow.start", {"definitionId": "release", "input": {"service": "web"}})[
            "structuredContent"
        ]
        client.note("instance", stands["workflowId"], "1 draft")
        moved = client.call("workflow.submit", stands["links"][0]["args"])["structuredContent"]
        client.note("instance", stands["workflowId"], f"{moved['version']} {moved['state']}")


def write_documents(client: Client) -> None:
    """Add documents, and remove every third."""
    for number in count():
        id = f"{client.name}/{number}"
        assert client.operate("POST", "documents", {"id": id, "skill": f"# {id}"}).status == 201
        client.note("document", id)
        if number % 3 == 0:
            client.note("ending", id)
            assert client.operate("DELETE", f"documents?id={id}").status == 200
            client.note("ended", id)


def write_keys(client: Client) -> None:
    """Create keys, and revoke every third."""
    for number in count():
        id = f"{client.name}-{number}"
        answer = client.operate("POST", "keys", {"id": id})
        assert answer.status == 201, answer
        client.note("key", id, json.loads(answer.body)["key"])
        if number % 3 == 0:
            client.note("ending", id)
            assert client.operate("DELETE", f"keys/{id}").status == 200
            client.note("ended", id)


def write_definitions(client: Client) -> None:
    """Create workflows."""
    for number in count():
        id = f"{client.name}-{number}"
        answer = client.operate("POST", "workflows", {"name": id, "workflow": FIELDS})
        assert answer.status == 201, answer
        client.note("definition", id)


WRITERS: Final[tuple[Callable[[Client], None], ...]] = (
    write_sessions,
    write_tasks,
    write_instances,
    write_documents,
    write_keys,
    write_definitions,
)


def reload_often(file: Path, stopped: threading.Event) -> None:
    """Save the configuration again and again, as an editor does: another prompt each time."""
    text = re.sub(r"  greet_\d+: .*\n", "", file.read_text())  # what an earlier round added
    for number in count():
        if stopped.wait(0.1):
            return
        draft = file.with_suffix(".new")
        draft.write_text(text.replace("  greet:", f"  greet_{number}: {{template: hello}}\n  greet:"))
        draft.replace(file)


@contextmanager
def hub_in(folder: Path) -> Iterator[HubUnderTest]:
    """The hub on its folder, which must start quickly after any kill."""
    with serving(folder / "waypost.yaml", "--port", "0", "--data", folder / "data", cwd=folder) as hub:
        under_test = HubUnderTest(hub)
        cpu = cpu_of(hub)
        if cpu > MAX_START_CPU_S:
            with serving(folder / "waypost.yaml", "--port", "0", "--data", folder / "new", cwd=folder) as new:
                HubUnderTest(new)
                assert cpu < MAX_SLOWER * cpu_of(new), f"it took {cpu} s to start, a new one {cpu_of(new)} s"
            shutil.rmtree(folder / "new")
        yield under_test


def cpu_of(hub: Serving) -> float:
    """The CPU time that a hub has used, in seconds."""
    user, system = Path(f"/proc/{hub.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def kill_at_random(folder: Path, name: str, chance: random.Random, facts: list[Fact]) -> None:
    """Let everything be written at once, and kill the hub after some acknowledgements."""
    before = len(facts)
    with hub_in(folder) as under_test:
        threads = [threading.Thread(target=run_writer, args=(write, under_test.port, name, facts)) for write in WRITERS]
        stopped = threading.Event()
        threads.append(threading.Thread(target=reload_often, args=(folder / "waypost.yaml", stopped)))
        for thread in threads:
            thread.start()
        wanted = before + chance.randrange(1, MOST_ACKNOWLEDGED)
        while len(facts) < wanted and any(thread.is_alive() for thread in threads[:-1]):
            stopped.wait(0.001)
        stopped.wait(chance.uniform(0, 0.02))  # so that it is not always killed right after an answer
        kill(under_test.hub)
        stopped.set()
        for thread in threads:
            thread.join(90)
    assert len(facts) > before


def run_writer(write: Callable[[Client], None], port: int, name: str, facts: list[Fact]) -> None:
    """Write until the hub is gone; record an impossible answer as a fact of its own."""
    client = None
    try:
        client = Client(port, f"{name}-{write.__name__}".replace("_", "-"), facts)
        write(client)
    except (Gone, OSError, ValueError):
        pass  # it was killed, perhaps in the middle of an answer
    except (AssertionError, KeyError, Silent) as error:
        facts.append(Fact("wrong", write.__name__, repr(error)))
    finally:
        if client is not None:
            client.close()


def find_lost(under_test: HubUnderTest, facts: list[Fact], ending: set[str]) -> list[str]:
    """Acknowledged writes that do not hold any more."""
    client = Client(under_test.port, "judge", [])
    ended = {fact.id for fact in facts if fact.kind == "ended"}
    wrong = [f"{fact}" for fact in facts if fact.kind == "wrong"]
    for fact in facts:
        if fact.id in ending and fact.id not in ended:
            continue  # it is unknown whether it was ended
        if not holds(client, fact, is_ended=fact.id in ended):
            wrong.append(f"{fact}, ended: {fact.id in ended}")
    client.close()
    return wrong


def holds(client: Client, fact: Fact, *, is_ended: bool) -> bool:
    """Whether an acknowledged write still holds."""
    match fact.kind:
        case "session":
            return client.ping(fact.id) == (404 if is_ended else 200)
        case "task":
            return json.loads(client.ask("tasks/get", {"taskId": fact.id}).body)["result"]["status"] in (
                "completed",
                "failed",
                "working",
            )
        case "instance":
            stands = client.call("workflow.get", {"workflowId": fact.id})["structuredContent"]
            version = int(fact.value.partition(" ")[0])
            return bool(stands["version"] > version or f"{stands['version']} {stands['state']}" == fact.value)
        case "document":
            return client.operate("GET", f"document?id={fact.id}").status == (404 if is_ended else 200)
        case "key":
            status = client.ask("tools/list", {}, fact.value).status
            return status == (401 if is_ended else 200)
        case "definition":
            return client.operate("GET", f"workflows/{fact.id}").status == 200
    return True


def test_nothing_acknowledged_is_lost_when_a_hub_is_killed_while_it_writes_everything(tmp_path: Path) -> None:
    folder, seed = tmp_path / "hub", random.randrange(1_000_000)
    build_lasting_hub(folder)
    chance, facts, looked = random.Random(seed), list[Fact](), 0
    for number in range(rounds(ROUNDS)):
        kill_at_random(folder, f"r{number}", chance, facts)
        ending = {fact.id for fact in facts if fact.kind == "ending"}
        with hub_in(folder) as under_test:
            kept = [
                fact for fact in facts[:looked] if fact.kind != "task" or fact.at > time.monotonic() - TASK_TTL_S / 2
            ]
            old = chance.sample(kept, min(SAMPLED, len(kept)))
            ends = [fact for fact in facts[:looked] if fact.kind == "ended"]
            assert find_lost(under_test, [*old, *ends, *facts[looked:]], ending) == [], f"seed {seed}, round {number}"
            client = Client(under_test.port, "judge", [])
            verdict = json.loads(client.operate("GET", "audit/verify").body)
            client.close()
            assert verdict["problems"] == [], f"seed {seed}, round {number}"
            assert verdict["entries"] > 0
            assert under_test.crashes == []
        looked = len(facts)
        with suppress(FileNotFoundError):
            (folder / "waypost.new").unlink()
    assert check(folder / "data") == []
    assert {fact.kind for fact in facts} >= {"session", "task", "instance", "document", "key", "definition"}
