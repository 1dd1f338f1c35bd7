"""Workers on the SDKs of the iii project with `auth`: the token that they need, and the callers that they act for."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.shell import serving, waypost
from tests.interop.iii_peers import LANGUAGES, Language, peer
from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import address, at_work, hub_for_workers, rows
from waypost import Context
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.policy.rules import Rule
from waypost.worker import register_worker

pytestmark = pytest.mark.timeout(300)

CONFIG = """
version: "1"
server: {name: desk, port: 0}
auth: {anonymous: false}
workers: {port: 0}
"""


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_worker_with_default_options_acts_for_the_caller_that_it_answers(language: Language, tmp_path: Path) -> None:
    seen: list[Any] = []
    rule = Rule(name="alice", type="allow_list", config={"allow": ["peer__*"]}, principals=("alice",))
    hub = hub_for_workers(policies=[rule])

    @hub.tool()
    def shell(ctx: Context) -> str:
        """Run a command."""
        seen.append((ctx.principal.id, [one.id for one in ctx.caller.chain.behind]))
        return "done"

    @asynchronous
    async def scenario() -> None:
        async with at_work(hub), peer(language, address(hub), tmp_path) as worker:
            await worker.offer("peer::relay", "relay")
            await until(lambda: rows(hub)["functions"] == 1)
            request = {"function_id": "shell", "payload": {}}
            for name in ("alice", "bob"):
                caller = DetachedCaller(Principal(name), FROM_OUTSIDE)
                result = await hub.runtime.core.pipeline.call("peer__relay", request, caller)
                assert result.is_error == (name == "alice"), result
            (behind,) = [names for name, names in seen if name == "bob"]
            assert behind[0] == "bob"
            assert await worker.call("shell", {}) == "done"
            assert [name for name, _ in seen] == ["bob", behind[1]]

    scenario()


def test_the_generated_worker_token_is_in_the_hub_file_and_survives_a_restart(tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    file = tmp_path / ".waypost" / "hub.json"
    tokens = []
    for _ in range(2):
        with serving("waypost.yaml", cwd=tmp_path) as hub:
            assert hub.url
            written = msgspec.json.decode(file.read_bytes())
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            tokens.append(written["workerToken"])
            printed = waypost("workers", "token", cwd=tmp_path)
            assert printed.stdout.strip() == written["workerToken"]

            @asynchronous
            async def scenario(url: str = written["workers"], token: str = written["workerToken"]) -> None:
                options = {"headers": {"Authorization": f"Bearer {token}"}}
                async with peer("python", url, tmp_path, options) as worker:
                    assert await worker.call("engine::functions::list", {})

            scenario()
    assert tokens[0] == tokens[1]


def test_a_worker_of_this_package_finds_the_token_of_the_hub_at_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        assert hub.url
        written = msgspec.json.decode((tmp_path / ".waypost" / "hub.json").read_bytes())
        monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / ".waypost"))

        @asynchronous
        async def scenario() -> None:
            async with register_worker(written["workers"].replace("127.0.0.1", "localhost"), name="found") as worker:
                assert (await worker.trigger("engine::workers::list"))["workers"][0]["name"] == "found"

        scenario()
