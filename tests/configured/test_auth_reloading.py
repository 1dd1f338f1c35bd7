"""Authentication after a reload: keys and anonymous callers change at once, OAuth at the next start."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.configured.conftest import DEADLINE, Folder
from tests.protocol.conftest import asynchronous, initialization, request, stateless
from tests.transports.http.conftest import EVENTS, Web
from waypost import Hub
from waypost.identity import digest, new_key

OLD, NEW = new_key(), new_key()
HEAD = 'version: "1"\nserver: {surface: full}\n'
OAUTH = (
    "  oauth: {issuer: 'https://login.example.com/', resource: 'https://hub.example.com/mcp',"
    " jwks: 'https://login.example.com/keys'}\n"
)


def written(*keys: tuple[str, str], anonymous: str = "false", more: str = "") -> str:
    """A file with keys, each an id and the key itself."""
    rows = ", ".join(f'{{id: {name}, hash: "{digest(key)}", roles: [agent]}}' for name, key in keys)
    return f"{HEAD}auth:\n  anonymous: {anonymous}\n  keys: [{rows}]\n{more}"


@asynccontextmanager
async def served(folder: Folder, text: str) -> AsyncIterator[tuple[Hub, Web]]:
    """A hub of a file over HTTP."""
    folder.write("waypost.yaml", text)
    hub = folder.hub()
    async with asyncio.timeout(DEADLINE):
        try:
            yield hub, Web(hub)
        finally:
            await hub.stop()


async def status(web: Web, key: str | None) -> int:
    """The status that a caller with a key gets."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return (await web.post(initialization(), headers)).status


async def reload(folder: Folder, hub: Hub, text: str) -> bool:
    folder.write("waypost.yaml", text)
    return await hub.reload()


@asynchronous
async def test_a_reload_refuses_a_removed_key_and_accepts_its_replacement(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        assert [await status(web, key) for key in (OLD, NEW)] == [200, 401]

        assert await reload(folder, hub, written(("ci", NEW)))

        assert [await status(web, key) for key in (OLD, NEW)] == [401, 200]
    assert "next start" not in caplog.text


@asynchronous
async def test_the_session_of_a_removed_key_is_refused_at_its_next_request(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        by_key = {"authorization": f"Bearer {OLD}"}
        opened = await web.post(initialization(), by_key)
        session = {**by_key, "mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await web.post(request(1, "ping"), session)).status == 200

        assert await reload(folder, hub, written(("other", NEW)))

        refused = await web.post(request(2, "ping"), session)
        assert (refused.status, json.loads(refused.body)) == (401, {"error": "Invalid API key"})


@asynchronous
async def test_the_streams_of_a_removed_key_end_with_the_reload(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD), ("other", NEW))) as (hub, web):
        by_key = {"authorization": f"Bearer {OLD}"}
        opened = await web.post(initialization(), by_key)
        session = opened.headers["mcp-session-id"]
        wants = stateless(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        streams = [
            web.open("GET", headers={**by_key, "mcp-session-id": session, "accept": EVENTS, "content-type": None}),
            web.open_modern(wants, by_key),
        ]
        for stream in streams:
            await stream.started()

        assert await reload(folder, hub, written(("other", NEW)))

        for stream in streams:
            await stream.done()
        assert hub.engine.sessions.get(session) is None


@asynchronous
async def test_a_session_continues_with_the_replacement_of_its_key(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        opened = await web.post(initialization(), {"authorization": f"Bearer {OLD}"})
        assert await reload(folder, hub, written(("ci", NEW)))

        session = {"authorization": f"Bearer {NEW}", "mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await web.post(request(1, "ping"), session)).status == 200


@asynchronous
async def test_keys_created_at_runtime_survive_a_reload(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        made = await hub.keys.create("made", roles=["agent"])

        assert await reload(folder, hub, written(("ci", NEW)))

        assert [await status(web, key) for key in (made, NEW)] == [200, 200]
        await hub.keys.revoke("made")
        assert await status(web, made) == 401


@asynchronous
async def test_a_reload_changes_the_roles_of_keys_and_of_anonymous_callers(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD), anonymous="{roles: [guest]}")) as (hub, _):
        assert await reload(
            folder, hub, written(("ci", OLD), anonymous="{permissions: [look]}").replace("[agent]", "[boss]")
        )
        key, anonymous = (
            hub.runtime.authentication.known({b"authorization": f"Bearer {OLD}".encode()}),
            hub.runtime.authentication.known({}),
        )

    assert key is not None
    assert key.roles == ("boss",)
    assert anonymous is not None
    assert (anonymous.roles, anonymous.permissions) == ((), ("look",))


@asynchronous
async def test_adding_or_removing_the_section_applies_at_once(folder: Folder) -> None:
    async with served(folder, HEAD) as (hub, web):
        assert await status(web, None) == 200
        assert await reload(folder, hub, written(("ci", OLD)))
        assert [await status(web, key) for key in (None, OLD)] == [401, 200]
        assert await reload(folder, hub, f"{HEAD}auth: {{anonymous: true}}\n")
        assert await status(web, None) == 200
        assert await reload(folder, hub, HEAD)
        assert await status(web, None) == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        (HEAD, "auth: the section is gone"),
        (f"{HEAD}auth: {{keys: []}}\n", "auth: callers without a key would be accepted"),
        (written(("ci", OLD), anonymous=""), "auth: callers without a key would be accepted"),
        (f"{HEAD}auth: {{anonymous: false}}\n", "auth: all keys and the authorization server are gone"),
    ],
    ids=["empty", "no section", "no keys", "no value", "only anonymous"],
)
def test_callers_still_need_a_key_unless_the_file_says_otherwise(
    text: str, said: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served(folder, written(("ci", OLD))) as (hub, web):
            assert not await reload(folder, hub, text)
            assert [await status(web, key) for key in (None, NEW, OLD)] == [401, 401, 200]

    asyncio.run(scenario())
    assert f"the configuration was not reloaded: {folder.config}:" in caplog.text
    assert said in caplog.text


@asynchronous
async def test_an_error_in_the_file_leaves_the_keys_unchanged(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        assert not await reload(folder, hub, written(("ci", NEW), ("twin", NEW)))
        assert not await reload(folder, hub, written(("ci", NEW), more="servre: {}\n"))
        assert [await status(web, key) for key in (OLD, NEW)] == [200, 401]


@asynchronous
async def test_a_change_of_oauth_applies_at_the_next_start(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    async with served(folder, written(("ci", OLD), more=OAUTH)) as (hub, web):
        assert await reload(folder, hub, written(("ci", OLD), more=OAUTH))
        assert "next start" not in caplog.text

        assert await reload(folder, hub, f"{HEAD}auth: {{anonymous: true}}\n")

        assert [await status(web, key) for key in (None, OLD)] == [401, 401]
        assert hub.runtime.authentication.metadata() is not None
    assert "changes in the section auth.oauth take effect at the next start" in caplog.text


@asynchronous
async def test_a_reload_cannot_allow_anonymous_callers_on_a_public_address(
    folder: Folder, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "waypost.transports.http.server.serve", lambda app, listening, *rest, **options: listening.close()
    )
    async with served(folder, written(("ci", OLD))) as (hub, web):
        hub.run("http", host="0.0.0.0")
        with caplog.at_level(logging.ERROR, "waypost"):
            assert not await reload(folder, hub, written(("ci", OLD), anonymous="true"))

        assert await status(web, None) == 401
    assert "not reloaded: 0.0.0.0 can be reached from outside" in caplog.text
