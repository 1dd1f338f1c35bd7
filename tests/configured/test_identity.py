"""OAuth and expiring keys of a configuration file, served by `waypost serve` to clients over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from tests.configured.conftest import Folder
from tests.policy.issuer import Server, key_set, serving, token
from tests.protocol.conftest import Json, asynchronous, initialization, stateless
from tests.transports.http.conftest import BOTH, routing
from waypost.identity import digest, new_key

RESOURCE = "https://hub.example.com/mcp"
KEY = f"sha256:{'0' * 64}"
OAUTH: Json = {"issuer": "https://issuer.example", "resource": RESOURCE, "jwks": "https://issuer.example/keys"}
ASKED: Json = {"endpoint": "https://issuer.example/ask", "clientId": "hub", "clientSecret": "s3cret"}
WORKFLOW = """
workflows:
  ship:
    title: Ship
    initialState: draft
    states:
      draft:
        transitions:
          release: {target: shipped, executor: {kind: human, role: lead, prompt: "Ship it?"}}
      shipped: {terminal: true, outcome: succeeded}
"""


@pytest.mark.parametrize(
    ("section", "key", "sentence"),
    [
        ({"oauth": {**OAUTH, "introspection": ASKED}}, "auth.oauth", "OAuth needs either the issuer's keys (jwks) or"),
        ({"oauth": {k: v for k, v in OAUTH.items() if k != "jwks"}}, "auth.oauth", "OAuth needs either the issuer's"),
        ({"oauth": {**OAUTH, "requiredScopes": ["a b"]}}, "auth.oauth", "There can be no scope 'a b' here"),
        (
            {"oauth": {**OAUTH, "claims": {"role": "x"}}},
            "auth.oauth.claims.role",
            "did you mean `roles`?",
        ),
        (
            {"oauth": {**OAUTH, "claims": {"roles": 7}}},
            "auth.oauth.claims.roles",
            "expected text or nothing, got an integer",
        ),
        (
            {"oauth": {**OAUTH, "jwks": None, "introspection": {**ASKED, "endpoint": "http://issuer.example/ask"}}},
            "auth.oauth",
            "The introspection endpoint must be an https URL",
        ),
        ({"keys": [{"id": "ci", "hash": KEY, "expires": "tomorrow"}]}, "auth.keys[0].expires", "expected a time as in"),
        ({"keys": [{"id": "ci", "hash": KEY, "expires": "2027-01-31T12:00:00"}]}, "auth.keys[0].expires", "RFC 3339"),
        (
            {"keys": [{"id": "ci", "hash": KEY, "expires": "2027-02-31T12:00:00Z"}]},
            "auth.keys[0]",
            "The expiry of key 'ci' is not a valid time: 2027-02-31T12:00:00Z",
        ),
    ],
)
def test_an_invalid_identity_setting_is_a_finding_at_its_line(
    section: Json, key: str, sentence: str, folder: Folder
) -> None:
    folder.write("waypost.yaml", f"version: '1'\nauth: {json.dumps(section)}\n")

    (found,) = folder.findings()

    assert (found.key, found.line) == (key, 2)
    assert sentence in found.message


@pytest.mark.parametrize("expires", ["2027-01-31T12:00:00Z", "2027-01-31t14:00:00.5+02:00", "2027-01-31 12:00Z"])
def test_an_expiry_may_be_written_as_rfc_3339_allows(expires: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"auth: {{keys: [{{id: ci, hash: '{KEY}', expires: {expires}}}]}}\n")

    auth = folder.hub().auth

    assert auth is not None
    (key,) = auth.keys
    assert key.expires is not None
    assert key.expires.astimezone(UTC).replace(microsecond=0) == datetime(2027, 1, 31, 12, tzinfo=UTC)


class Client:
    """A client of a hub that `waypost serve` serves."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url

    async def ask(self, verb: str, path: str, credential: str, body: Json | None = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {credential}"}
        async with self.http.request(verb, self.url + path, headers=headers, json=body) as response:
            return response.status, await response.json()

    def post(self, credential: str, message: Json) -> Any:
        known = {name: value for name, value in routing(message).items() if value is not None}
        headers = {"accept": BOTH, "content-type": "application/json", "authorization": f"Bearer {credential}", **known}
        return self.http.post(f"{self.url}/mcp", data=json.dumps(message), headers=headers)

    async def ask_in_session(self, headers: dict[str, str], message: Json) -> str:
        async with self.http.post(f"{self.url}/mcp", headers=headers, json=message) as response:
            return await response.text()

    async def call(self, credential: str, tool: str, arguments: Json) -> tuple[int, Any]:
        message = stateless(1, "tools/call", {"name": tool, "arguments": arguments})
        async with self.post(credential, message) as response:
            return response.status, await response.json()


@asynccontextmanager
async def served(folder: Folder, text: str) -> AsyncIterator[Client]:
    folder.write("waypost.yaml", text)
    command = (sys.executable, "-m", "waypost", "serve", str(folder.config), "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, cwd=folder.path
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            found = None
            while found is None:
                line = (await process.stderr.readline()).decode()
                assert line, "the hub did not start"
                found = re.search(r"(http://127\.0\.0\.1:\d+)/mcp", line)
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
                yield Client(http, found[1])
    finally:
        process.terminate()
        await process.communicate()


def with_issuer(issuer: Server, **more: Any) -> str:
    oauth = {"issuer": issuer.url, "resource": RESOURCE, "jwks": issuer.url, **more}
    return f'version: "1"\nserver: {{surface: both}}\nauth: {{oauth: {json.dumps(oauth)}}}\n'


def signed(issuer: Server, name: str = "ed", lifetime: float = 300, **claims: Any) -> str:
    now = time.time()
    said = {"iss": issuer.url, "aud": RESOURCE, "iat": now, "exp": now + lifetime, **claims}
    return token(name, header={"alg": "Ed25519"}, **said)


@asynchronous
async def test_an_oauth_user_with_the_role_in_a_claim_approves_a_human_gate(folder: Folder) -> None:
    async with serving() as issuer:
        issuer.answers(key_set("ed"))
        claims = {"id": "email", "roles": "realm_access.roles", "permissions": "scp"}
        text = with_issuer(issuer, claims=claims, requiredScopes=["hub"], audiences=["api://hub"]) + WORKFLOW
        lead = signed(issuer, scope="hub", email="lea@example.com", realm_access={"roles": ["lead"]})
        agent = signed(issuer, scope="hub", email="bot@example.com", aud="api://hub")
        async with served(folder, text) as hub:
            status, started = await hub.call(agent, "workflow.start", {"definitionId": "ship", "input": {}})
            assert status == 200, started
            instance = started["result"]["structuredContent"]
            submit = {"workflowId": instance["workflowId"], "expectedVersion": 1, "transition": "release"}
            _, asked = await hub.call(agent, "workflow.submit", {**submit, "arguments": {}})
            approval = asked["result"]["structuredContent"]["approval"]["id"]

            refused = await hub.ask("POST", f"/api/v1/approvals/{approval}/approve", agent, {})
            approved = await hub.ask("POST", f"/api/v1/approvals/{approval}/approve", lead, {})
            missing = await hub.ask("GET", "/api/v1/approvals", signed(issuer, scope="x", email="lea@example.com"))
            nameless = await hub.ask("GET", "/api/v1/approvals", signed(issuer, scope="hub"))

        assert refused[0] in (403, 404)
        assert (approved[0], approved[1]["state"]) == (200, "shipped")
        assert missing == (403, {"error": "Insufficient scope"})
        assert nameless == (401, {"error": "Invalid API key"})
        assert issuer.hits == 1


@asynchronous
async def test_opaque_tokens_are_introspected(folder: Folder) -> None:
    async with serving() as issuer:
        now = time.time()
        said = {"active": True, "sub": "ada", "aud": RESOURCE, "exp": now + 60, "groups": ["lead"]}
        issuer.answers(said)
        asked = {"endpoint": issuer.url, "clientId": "hub", "clientSecret": "${HUB_SECRET:-s3cret}"}
        text = with_issuer(issuer, jwks=None, introspection=asked, claims={"roles": "groups"})
        async with served(folder, text) as hub:
            status, found = await hub.ask("GET", "/api/v1/approvals", "opaque-token")
            issuer.answers({"active": False})
            refused = await hub.ask("GET", "/api/v1/approvals", "another-token")

        assert (status, found["approvals"]) == (200, [])
        assert refused == (401, {"error": "Invalid API key"})
        sent, form = issuer.requests[0]
        assert form["token"] == "opaque-token"
        assert sent.headers["authorization"].startswith("Basic ")


async def read_events(response: aiohttp.ClientResponse) -> list[Json]:
    """All messages of a stream until the hub ends it."""
    text = (await response.read()).decode()
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


LISTEN = stateless(5, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})


@asynchronous
async def test_an_expired_key_is_refused_and_its_streams_end(folder: Folder) -> None:
    key = new_key()
    config = """auth: {{keys: [{{id: ci, hash: "{}", expires: "{}"}}]}}\n"""
    text = config.format(digest(key), datetime.fromtimestamp(time.time() + 3600, UTC).isoformat())
    async with served(folder, text) as hub, hub.post(key, LISTEN) as stream:
        assert stream.status == 200
        assert (await stream.content.readuntil(b"\n\n")).startswith(b"event: message")

        # The expiry is set after the start, so that a slow start does not use it up.
        expires = time.time() + 4
        folder.write("waypost.yaml", config.format(digest(key), datetime.fromtimestamp(expires, UTC).isoformat()))
        rest = await stream.read()

        assert time.time() > expires
        assert b'"id":5' in rest
        assert (await hub.call(key, "gateway.home", {}))[0] == 401


SLOW = """\
import asyncio
from waypost import Toolkit, tool

class Kit(Toolkit):
    @tool(timeout=60)
    async def slow(self) -> str:
        await asyncio.sleep(50)
        return "done"
"""


@asynchronous
async def test_streams_and_calls_of_an_expired_token_end_and_its_session_accepts_the_next_token(
    folder: Folder,
) -> None:
    folder.write("slow.py", SLOW)
    async with serving() as issuer:
        issuer.answers(key_set("ed"))
        text = with_issuer(issuer) + "toolkits: [./slow.py]\n"
        async with served(folder, text) as hub:
            # A token is refused 30 seconds after its expiry, the allowed clock skew; a call that takes 15
            # seconds is answered as a stream.
            short, later = signed(issuer, lifetime=-20), signed(issuer)
            bare = {"accept": BOTH, "authorization": f"Bearer {short}"}
            async with hub.http.post(f"{hub.url}/mcp", headers=bare, json=initialization()) as opened:
                session = {"mcp-session-id": opened.headers["mcp-session-id"], "accept": BOTH}
            with_short = {**session, "authorization": f"Bearer {short}"}
            with_later = {**session, "authorization": f"Bearer {later}"}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            async with (
                hub.http.get(f"{hub.url}/mcp", headers=with_short) as events,
                hub.post(short, LISTEN) as stream,
                hub.post(later, LISTEN) as other,
            ):
                called = asyncio.create_task(hub.call(short, "slow", {}))
                await events.read()
                await stream.read()
                status, answer = await called
                assert "token of this request is refused" in answer["error"]["message"], status
                assert not other.content.at_eof()
            async with hub.http.post(f"{hub.url}/mcp", headers=with_short, json=ping) as refused:
                assert refused.status == 401
            async with hub.http.post(f"{hub.url}/mcp", headers=with_later, json=ping) as continued:
                assert continued.status == 200


@asynchronous
async def test_streams_and_calls_of_a_token_that_becomes_inactive_end_and_its_session_stays(folder: Folder) -> None:
    folder.write("slow.py", SLOW)
    async with serving() as issuer:
        active = {"active": True, "sub": "ada", "aud": RESOURCE, "exp": time.time() + 600}
        issuer.answers(active)
        asked = {"endpoint": issuer.url, "clientId": "hub", "clientSecret": "s3cret", "rememberMs": 1000}
        text = with_issuer(issuer, jwks=None, introspection=asked) + "toolkits: [./slow.py]\n"
        async with served(folder, text) as hub:
            bare = {"accept": BOTH, "authorization": "Bearer opaque"}
            async with hub.http.post(f"{hub.url}/mcp", headers=bare, json=initialization()) as opened:
                session = {**bare, "mcp-session-id": opened.headers["mcp-session-id"]}
            slow = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            async with (
                hub.http.get(f"{hub.url}/mcp", headers=session) as events,
                hub.post("opaque", LISTEN) as stream,
            ):
                called = asyncio.create_task(hub.call("opaque", "slow", {}))
                in_session = asyncio.create_task(hub.ask_in_session(session, slow))
                # Rechecks: no request is sent meanwhile.
                for _ in range(3):
                    issuer.asked.clear()
                    async with asyncio.timeout(30):
                        await issuer.asked.wait()
                assert not called.done()
                assert not events.content.at_eof()

                issuer.answers({"active": False})
                async with asyncio.timeout(30):
                    await events.read()
                    await stream.read()
                    _, answer = await called
                    ended = await in_session
                assert "token of this request is refused" in answer["error"]["message"]
                assert "token of this request is refused" in ended
            async with hub.http.post(f"{hub.url}/mcp", headers=session, json=ping) as refused:
                assert refused.status == 401
            after = issuer.hits
            issuer.answers(active)
            fresh = {**session, "authorization": "Bearer fresh"}
            async with hub.http.post(f"{hub.url}/mcp", headers=fresh, json=ping) as continued:
                assert continued.status == 200
            # Nothing is open: the issuer is asked by requests only.
            await asyncio.sleep(2.5)
            assert issuer.hits == after + 1
