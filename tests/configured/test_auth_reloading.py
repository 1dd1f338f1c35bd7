"""Who is let in after the file changed: keys and callers without one at once, OAuth at the next start."""

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
    """What a caller with a key is answered."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return (await web.post(initialization(), headers)).status


async def reload(folder: Folder, hub: Hub, text: str) -> bool:
    folder.write("waypost.yaml", text)
    return await hub.reload()


@asynchronous
async def test_a_key_that_left_the_file_is_refused_after_a_reload_and_the_one_in_its_place_let_in(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        assert [await status(web, key) for key in (OLD, NEW)] == [200, 401]

        assert await reload(folder, hub, written(("ci", NEW)))

        assert [await status(web, key) for key in (OLD, NEW)] == [401, 200]
    assert "next start" not in caplog.text


@asynchronous
async def test_the_session_of_a_key_that_left_the_file_is_refused_at_its_next_request(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        by_key = {"authorization": f"Bearer {OLD}"}
        opened = await web.post(initialization(), by_key)
        session = {**by_key, "mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await web.post(request(1, "ping"), session)).status == 200

        assert await reload(folder, hub, written(("other", NEW)))

        refused = await web.post(request(2, "ping"), session)
        assert (refused.status, json.loads(refused.body)) == (401, {"error": "Invalid API key"})


@asynchronous
async def test_the_streams_of_a_key_that_left_the_file_end_with_the_reload(folder: Folder) -> None:
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
async def test_a_session_goes_on_with_the_key_that_took_the_place_of_its_own(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        opened = await web.post(initialization(), {"authorization": f"Bearer {OLD}"})
        assert await reload(folder, hub, written(("ci", NEW)))

        session = {"authorization": f"Bearer {NEW}", "mcp-session-id": opened.headers["mcp-session-id"]}
        assert (await web.post(request(1, "ping"), session)).status == 200


@asynchronous
async def test_keys_made_while_the_hub_runs_and_its_own_stay_over_a_reload(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        made = await hub.keys.create("made", roles=["agent"])

        assert await reload(folder, hub, written(("ci", NEW)))

        assert [await status(web, key) for key in (made, NEW)] == [200, 200]
        await hub.keys.revoke("made")
        assert await status(web, made) == 401


@asynchronous
async def test_roles_of_keys_and_of_callers_without_one_follow_the_file(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD), anonymous="{roles: [guest]}")) as (hub, _):
        assert await reload(
            folder, hub, written(("ci", OLD), anonymous="{permissions: [look]}").replace("[agent]", "[boss]")
        )
        key, nobody = (
            hub.runtime.authentication.known({b"authorization": f"Bearer {OLD}".encode()}),
            hub.runtime.authentication.known({}),
        )

    assert key is not None
    assert key.roles == ("boss",)
    assert nobody is not None
    assert (nobody.roles, nobody.permissions) == ((), ("look",))


@asynchronous
async def test_a_section_that_comes_or_goes_counts_at_once(folder: Folder) -> None:
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
def test_callers_still_need_a_key_where_the_file_does_not_say_otherwise(
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
async def test_a_mistake_in_the_file_leaves_the_keys_as_they_were(folder: Folder) -> None:
    async with served(folder, written(("ci", OLD))) as (hub, web):
        assert not await reload(folder, hub, written(("ci", NEW), ("twin", NEW)))
        assert not await reload(folder, hub, written(("ci", NEW), more="servre: {}\n"))
        assert [await status(web, key) for key in (OLD, NEW)] == [200, 401]


@asynchronous
async def test_a_change_of_oauth_waits_for_the_next_start_and_opens_nothing_until_then(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(folder, written(("ci", OLD), more=OAUTH)) as (hub, web):
        assert await reload(folder, hub, written(("ci", OLD), more=OAUTH))
        assert "next start" not in caplog.text

        assert await reload(folder, hub, f"{HEAD}auth: {{anonymous: true}}\n")

        assert [await status(web, key) for key in (None, OLD)] == [401, 401]
        assert hub.runtime.authentication.metadata() is not None
    assert "changes in the section auth.oauth take effect at the next start" in caplog.text


@asynchronous
async def test_a_hub_that_is_reached_from_outside_is_not_opened_to_everybody_by_a_reload(
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
