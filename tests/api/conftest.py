"""A hub with rules, keys and an audit, and an operator who uses its API in process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tests.protocol.conftest import Json
from tests.transports.http.conftest import HOST, Call, Web
from waypost import Context, Hub, ToolError
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication, Key, digest, new_key
from waypost.policy import Rule

ADMIN = new_key()
AGENT = new_key()
RULES = (
    Rule(name="no-shell", type="mcp_restriction", config={"tool_pattern": "shell"}, priority=10),
    Rule(name="slowly", type="rate_limit", config={"max_calls": 1}, capabilities=("add",)),
    Rule(name="asleep", type="mcp_restriction", config={"tool_pattern": "add"}, enabled=False),
)


def operated_hub(rules: Iterable[Rule] = RULES, **options: Any) -> Hub:
    """A hub with two keys in its configuration, whose callers may be anonymous."""
    auth = Authentication(
        [
            Key("root", digest(ADMIN), roles=("admin",)),
            Key("agent", digest(AGENT), roles=("agent",), permissions=("deploy",), scopes=("notes:write",)),
        ],
        anonymous=Principal("anonymous", ("guest",)),
    )
    hub = Hub("desk", version="1", auth=auth, policies=rules, audit="store", **options)

    @hub.tool(category="Maths")
    async def add(a: float, b: float) -> float:
        return a + b

    @hub.tool(permissions=["deploy"])
    async def deploy(ctx: Context) -> str:
        return ctx.principal.id

    @hub.tool(hidden=True, name="skill:shell")
    async def shell(secret: str = "") -> str:
        raise ToolError("no")

    @hub.tool(scopes=["notes:write"])
    async def note(text: str) -> str:
        return text

    @hub.resource("docs://readme")
    async def readme() -> str:
        return "hello"

    @hub.prompt
    def greet(name: str) -> str:
        return name

    return hub


class Operator(Web):
    """An operator of a hub."""

    async def ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = ADMIN,
        client: str = "203.0.113.9",
        accept: str = "application/json",
        raw: bytes | None = None,
        more: dict[str, str] | None = None,
    ) -> Call:
        """Send a request, by default with an admin's key and from a remote address."""
        headers = {"host": HOST, "accept": accept, **(more or {})}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        place, _, query = path.partition("?")
        scope: Json = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (client, 50000),
            "server": ("127.0.0.1", 8420),
        }
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        call = Call(self.app, scope, [data])
        self.calls.append(call)
        await call.task
        return call

    async def fetch(self, verb: str, path: str, body: Any = None, **options: Any) -> Any:
        """The body of a successful response."""
        call = await self.ask(verb, path, body, **options)
        assert call.status in (200, 201), call.body
        return json.loads(call.body)

    async def refused(self, verb: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """The status and the error message of a refused request."""
        call = await self.ask(verb, path, body, **options)
        said = json.loads(call.body)
        assert said["error"]
        return call.status, said["error"]

    async def use(self, name: str, arguments: Json | None = None, key: str | None = None) -> Call:
        """Call a tool as a client."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return await self.modern("tools/call", {"name": name, "arguments": arguments or {}}, headers)


@asynccontextmanager
async def operating(hub: Hub | None = None) -> AsyncIterator[Operator]:
    """An operator of a hub; the hub is stopped when the block ends."""
    operator = Operator(operated_hub() if hub is None else hub)
    try:
        yield operator
    finally:
        await operator.hub.stop()
        for call in operator.calls:
            call.leave()
