"""A hub with a secret in every section of its configuration stores none of them, also when it is killed."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.shell import Serving, serving
from tests.configured.test_torn_saves import KEY, Client
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.postgres import run_sql
from waypost.identity import digest
from waypost.worker import register_worker

NAMES: Final = (
    *("CLI_SECRET", "ARGUMENT_SECRET", "STDIN_TEXT", "SCRIPT_MODE", "BLOCK_SECRET", "EXPOSED_SECRET"),
    *("API_TOKEN", "REST_TOKEN", "BODY_TOKEN", "QUERY_SIGN", "STDIO_TOKEN", "STDIO_ARGUMENT_TOKEN", "HTTP_TOKEN"),
    *("STEP_WORD", "KIT_PASSWORD", "PROMPT_SECRET", "WORKER_TOKEN", "CALL_WORD", "MAP_WORD"),
    *("GUARD_WORD", "EXPOSED_GUARD_WORD"),
)
"""Some have ordinary names: their values are tokens all the same."""
ECHO: Final = "import os, sys; print(os.environ.get('T'), sys.argv[1:], sys.stdin.read())"
FAIL: Final = ECHO + "; sys.stdout.flush(); print(os.environ['T'], file=sys.stderr); sys.exit(3)"
SLOW: Final = "import os, time; open('began', 'w').close(); time.sleep(60); print(os.environ['T'])"
KIT: Final = """\
from waypost import Toolkit, tool


class Kit(Toolkit):
    def __init__(self, password: str) -> None:
        self.password = password

    @tool(name="mirror")
    async def mirror(self, word: str = "") -> str:
        return f"{word} {len(self.password)}"
"""
UPSTREAM: Final = """\
import os, sys
from waypost import Hub

hub = Hub("upstream", "1.0")


@hub.tool()
def mirror(word: str = "") -> str:
    return f"{word} {os.environ.get('T', '')} {sys.argv[1:]}"


if __name__ == "__main__":
    hub.run("stdio")
"""
CONFIG: Final = """\
version: "1"
server: {{name: desk, port: 0, surface: both}}
store: {{url: "{store}"}}
auth: {{keys: [{{id: ci, hash: "{hash}", roles: [admin]}}]}}
workers: {{port: 0, token: "${{WORKER_TOKEN}}"}}
toolkits: [{{use: "./kit.py:Kit", config: {{password: "${{KIT_PASSWORD}}"}}}}]
prompts: {{greet: {{template: "Say ${{PROMPT_SECRET}}"}}}}
connections:
  api: {{kind: rest, baseUrl: "{api}", allowPrivate: true, headers: {{Authorization: "Bearer ${{API_TOKEN}}"}}}}
  near: {{kind: mcp,
    command: {python}, args: [{folder}/upstream.py, "${{STDIO_ARGUMENT_TOKEN}}"],
    env: {{T: "${{STDIO_TOKEN}}"}}}}
  far: {{kind: mcp, url: "{far}", headers: {{X-Far: "${{HTTP_TOKEN}}"}}}}
  shell: {{kind: cli, command: {python}, args: [-c, "{echo}"], env: {{T: "${{CLI_SECRET}}"}}}}
capabilities:
  block: {{executor: {{kind: cli, command: {python}, args: [-c, "{echo}"], env: {{T: "${{BLOCK_SECRET}}"}}}}}}
proxy:
  import: [{{connection: near}}, {{connection: far}}]
  expose:
    - name: exposed
      executor: {{kind: cli, command: {python}, args: [-c, "{echo}", "${{EXPOSED_SECRET}}"]}}
    - name: guarded
      inputSchema: {{type: object, properties: {{word: {{type: string}}}}}}
      guards: [{{kind: expr, expr: '$.arguments.word == "${{EXPOSED_GUARD_WORD}}"'}}]
      executor: {{kind: noop}}
workflows:
  work:
    initialState: open
    states:
      open:
        transitions:
          shell: {{target: open,
            executor: {{kind: cli, connection: shell, args: ["${{ARGUMENT_SECRET}}"], stdin: "${{STDIN_TEXT}}"}},
          output: {{said: $.output}}}}
          fail: {{target: open,
            executor: {{kind: cli, command: {python}, args: [-c, "{fail}"], env: {{T: "${{CLI_SECRET}}"}}}}
          }}
          slow: {{target: open,
            executor: {{kind: cli, command: {python}, args: [-c, "{slow}"], env: {{T: "${{CLI_SECRET}}"}}}}
          }}
          script: {{target: open,
            executor: {{kind: script, file: "{folder}/go.sh", sha256: {sha}, env: {{T: "${{SCRIPT_MODE}}"}}}},
          output: {{said: $.output}}}}
          block: {{target: open, executor: {{kind: capability, capability: block}}, output: {{said: $.output}}}}
          rest:
            target: open
            executor:
              kind: rest
              connection: api
              method: POST
              path: /echo
              query: {{q: "${{QUERY_SIGN}}"}}
              headers: {{X-Own: "${{REST_TOKEN}}"}}
              body: {{inner: ["${{BODY_TOKEN}}"]}}
            output: {{said: $.output}}
          refused: {{target: open,
            executor: {{kind: rest, connection: api, path: /refuse, headers: {{X-Own: "${{REST_TOKEN}}"}}}}
          }}
          near: {{target: open,
            executor: {{kind: mcp, connection: near, tool: mirror, map: {{word: "${{MAP_WORD}}"}}}},
          output: {{said: $.output}}}}
          far: {{target: open,
            executor: {{kind: mcp, connection: far, tool: mirror, map: {{word: "${{MAP_WORD}}"}}}},
          output: {{said: $.output}}}}
          call: {{target: open,
            executor: {{kind: capability, capability: mirror, arguments: {{word: "${{CALL_WORD}}"}}}},
          output: {{said: $.output}}}}
          worker: {{target: open,
            executor: {{kind: worker, function: "desk::mirror", arguments: {{word: "${{CALL_WORD}}"}}}},
          output: {{said: $.output}}}}
          guarded: {{target: open, guards: [{{kind: expr, expr: '$.arguments.word == "${{GUARD_WORD}}"'}}]}}
          end: {{target: closed}}
      closed: {{terminal: true}}
  stepped:
    steps: [{{name: one, capability: mirror, config: {{word: "${{STEP_WORD}}"}}}}]
"""
WAYS: Final = ("shell", "script", "block", "rest", "near", "far", "call", "worker")
GO: Final = '#!/bin/sh\necho "$T" "$0"\n'


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the request."""

    def do_POST(self) -> None:
        self._answer(200)

    def do_GET(self) -> None:
        self._answer(403)

    def _answer(self, status: int) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        sent = json.dumps({"path": self.path, "headers": dict(self.headers), "body": body}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture
def api() -> Iterator[str]:
    """The address of an API that echoes."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[str]:
    """The address of another MCP server."""
    folder = tmp_path / "far"
    folder.mkdir()
    (folder / "upstream.py").write_text(UPSTREAM)
    with serving("upstream.py:hub", "--port", "0", cwd=folder) as hub:
        yield hub.url


class Desk:
    """The hub under test: its folder, its secrets, and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.values = {name: f"{name[:3]}-{secrets.token_hex(12)}" for name in NAMES}
        self.logs: list[str] = []

    @contextmanager
    def run(self) -> Iterator[tuple[Serving, Client]]:
        env = {**self.values, "TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        with serving("waypost.yaml", "--data", "data", cwd=self.folder, **env) as hub:
            self.url, self.workers = re.findall(r"(?:http|ws)://[^, ]+", hub.wait_for(" is ready at "))
            client = Client(self.url)
            try:
                yield hub, client
            finally:
                client.close()
                self.logs += hub.lines

    def find_stored(self, *more: bytes) -> set[str]:
        """The secrets in any file of the data directory, of the temporary directory, in logs, or in other content."""
        files = [file for folder in ("data", "tmp") for file in (self.folder / folder).rglob("*") if file.is_file()]
        content = b"\n".join([*(file.read_bytes() for file in files), "\n".join(self.logs).encode(), *more])
        assert b"work" in content
        return {name for name, value in {**self.values, "KEY": KEY}.items() if value.encode() in content}


def call(client: Client, tool: str, **arguments: Any) -> Any:
    found = client.ask("tools/call", {"name": tool, "arguments": arguments})
    return found["result"].get("structuredContent", found["result"])


def submit(client: Client, instance: str, transition: str) -> Any:
    known = call(client, "workflow.get", workflowId=instance)
    given = {"workflowId": instance, "expectedVersion": known["version"], "transition": transition, "arguments": {}}
    return call(client, "workflow.submit", **given, requestId=secrets.token_hex(4))


def work(desk: Desk, client: Client) -> str:
    """Use every secret; the id of the instance that did."""
    worker = register_worker(desk.workers, token=desk.values["WORKER_TOKEN"])
    worker.register_function("desk::mirror", lambda data: {"said": data})
    instance: str = call(client, "workflow.start", definitionId="work", input={})["workflowId"]
    outputs = {}
    for way in WAYS:
        answer = submit(client, instance, way)
        assert "error" not in answer, answer
        outputs[way] = json.dumps(answer["context"]["said"])
    assert all("[REDACTED]" in text for text in outputs.values()), outputs
    for way in ("fail", "refused"):
        assert submit(client, instance, way)["error"]["code"] == "EXECUTOR_FAILED"
    refusals = [
        submit(client, instance, "guarded"),
        call(client, "guarded", word="wrong"),
        call(client, "workflow.explain", workflowId=instance, definitionId="work"),
        call(client, "workflow.start", definitionId="proxy_default", input={"capability": "guarded", "arguments": {}}),
    ]
    for refused in refusals:
        said = json.dumps(refused)
        assert 'word == \\"[REDACTED]\\"' in said, said
        assert desk.values["GUARD_WORD"] not in said
        assert desk.values["EXPOSED_GUARD_WORD"] not in said
    call(client, "workflow:stepped")
    call(client, "exposed")
    call(client, "mirror", word="plain")
    assert desk.values["STDIO_TOKEN"] in json.dumps(call(client, "near.mirror"))
    client.ask("prompts/get", {"name": "greet"})
    worker.shutdown()
    return instance


def submit_until_killed(desk: Desk, instance: str) -> None:
    with suppress(OSError, http.client.HTTPException):
        submit(Client(desk.url), instance, "slow")


@pytest.mark.timeout(180)  # starts three hubs, two upstreams and a dozen commands in sequence
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_no_secret_of_any_kind_is_stored(
    engine: str, tmp_path: Path, api: str, far: str, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "desk"
    folder.mkdir()
    url: str = request.getfixturevalue("postgres_url") if engine == "postgres" else "sqlite:///desk.db"
    script = folder / "go.sh"
    script.write_text(GO)
    (folder / "kit.py").write_text(KIT)
    (folder / "upstream.py").write_text(UPSTREAM)
    (folder / "waypost.yaml").write_text(
        CONFIG.format(
            **{"store": url, "hash": digest(KEY), "api": api, "far": far, "python": sys.executable, "folder": folder},
            **{"echo": ECHO, "fail": FAIL, "slow": SLOW, "sha": digest(GO).removeprefix("sha256:")},
        )
    )
    desk = Desk(folder)

    def dump() -> bytes:
        if engine == "sqlite":
            return b""
        tables = run_sql(url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        rows = [row for (table,) in tables for row in run_sql(url, f'SELECT t::text FROM "{table}" t')]
        return "\n".join(row[0] for row in rows).encode()

    with desk.run() as (hub, client):
        instance = work(desk, client)
        slow = threading.Thread(target=submit_until_killed, args=(desk, instance))
        slow.start()
        while not (folder / "began").exists():
            slow.join(0.02)  # not a busy loop, which would take CPU time from the hub
            assert slow.is_alive()
        hub.signal(signal.SIGKILL)
        hub.wait()
        slow.join()
    assert desk.find_stored(dump()) == set()

    with desk.run() as (hub, client):
        work(desk, client)
        assert call(client, "workflow.get", workflowId=instance)["status"] == "unknown_outcome"
    assert desk.find_stored(dump()) == set()
