"""The registry as a worker of its own, beside a hub that has none, used by workers of the `iii-sdk`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous
from tests.worker.engine import settled, working
from tests.worker.sdk import Sdk, sdk
from tests.workers.wire import address, at_work, hub_for_workers
from waypost import Hub
from waypost.documents.delegation import Settings, host_documents, manifest, read_settings
from waypost.documents.stores import Scopes
from waypost.worker import Worker

THIRTEEN = {
    *("skills::register", "skills::unregister", "skills::list", "skills::fetch_skill", "skill::fetch"),
    *("skills::resources-list", "skills::resources-read", "skills::resources-templates"),
    *("prompts::register", "prompts::unregister", "prompts::list", "prompts::mcp-list", "prompts::mcp-get"),
}
KINDS = {"skills::on-change", "prompts::on-change"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK leaves notes in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))


def without_registry() -> Hub:
    return hub_for_workers(workers={"port": 0, "registry": False})


@asynccontextmanager
async def registry(hub: Hub, settings: Settings | None = None) -> AsyncIterator[Worker]:
    """The registry, once the hub knows it."""
    async with working(hub, "skills") as worker:
        host_documents(worker, settings or Settings())
        await settled(worker)
        yield worker


async def offered(theirs: Sdk) -> dict[str, Any]:
    """The functions of a registry in the list of the engine, without their owner."""
    listed = (await theirs.trigger("engine::functions::list", {"include_internal": True}))["functions"]
    return {one["function_id"]: {**one, "worker_name": ""} for one in listed if one["function_id"] in THIRTEEN}


@asynchronous
async def test_it_has_the_functions_and_trigger_types_of_a_hub() -> None:
    alone, whole = without_registry(), hub_for_workers()
    async with at_work(alone), registry(alone), sdk(address(alone)) as theirs:
        found = await offered(theirs)
        kinds = {kind.id: kind.description for kind in alone.workers.triggers.types if kind.worker}
    async with at_work(whole), sdk(address(whole)) as theirs:
        assert found == await offered(theirs)
        assert kinds == {kind.id: kind.description for kind in whole.workers.triggers.types if kind.id in KINDS}
    assert (set(found), set(kinds)) == (THIRTEEN, KINDS)


@asynchronous
async def test_skills_are_registered_listed_read_and_fetched_through_it() -> None:
    hub = without_registry()
    async with at_work(hub) as client, registry(hub), sdk(address(hub)) as theirs:

        async def health(data: Any) -> Any:
            return {"content": "# Health\n\nok"}

        await theirs.offer("resend::health", health)
        answer = await theirs.trigger("skills::register", {"id": "resend", "skill": "# resend\n\nEmail provider.\n"})
        await theirs.trigger("skills::register", {"id": "resend/email", "skill": "# email\n\nFlows.\n\n"})
        assert answer["id"] == "resend"

        listed = (await theirs.trigger("skills::list"))["skills"]
        assert [(one["id"], one["bytes"]) for one in listed] == [("resend", 26), ("resend/email", 17)]
        index = (await theirs.trigger("skills::resources-read", {"uri": "iii://skills"}))["contents"][0]["text"]
        assert "- [`resend`](iii://resend) — resend — Email provider.\n  - [`resend/email`]" in index
        fetched = await theirs.trigger("skill::fetch", {"uris": ["iii://resend/email", "iii://fn/resend/health"]})
        assert (
            fetched == "# iii://resend/email\n\n# email\n\nFlows.\n\n---\n\n# iii://fn/resend/health\n\n# Health\n\nok"
        )
        tool = await client.call_tool("skill__fetch", {"uri": "iii://resend"})
        assert "Email provider." in tool["content"][0]["text"]

        removed = await theirs.trigger("skills::unregister", {"id": "resend"})
        assert removed == {"id": "resend", "removed": True}
        for function, payload, text in [
            ("skills::resources-read", {"uri": "iii://resend"}, "Skill not found: resend"),
            ("skills::resources-read", {"uri": "iii://fn/state/get"}, "internal namespace"),
            ("skills::register", {"id": "Bad", "skill": "x"}, "lowercase ASCII letters"),
            ("skill::fetch", {}, "Provide uri or a non-empty uris array"),
            ("prompts::register", {"name": "x"}, "missing field `description`"),
        ]:
            error = await theirs.refused(function, payload)
            assert (error.code, text in str(error)) == ("invocation_failed", True), str(error)


@asynchronous
async def test_prompts_are_registered_listed_and_rendered_through_it() -> None:
    hub = without_registry()
    async with at_work(hub), registry(hub), sdk(address(hub)) as theirs:

        async def greet(data: Any) -> Any:
            return f"Greet {data.get('name', 'world')} warmly."

        await theirs.offer("demo::greet_prompt", greet)
        argument = {"name": "name", "description": "Who to greet", "required": True}
        prompt = {"name": "greet", "description": "Compose.", "arguments": [argument]}
        await theirs.trigger("prompts::register", {**prompt, "function_id": "demo::greet_prompt"})

        assert (await theirs.trigger("prompts::mcp-list")) == {"prompts": [prompt]}
        assert (await theirs.trigger("prompts::list"))["prompts"][0]["arguments"] == 1
        written = await theirs.trigger("prompts::mcp-get", {"name": "greet", "arguments": {"name": "Ada"}})
        message = {"role": "user", "content": {"type": "text", "text": "Greet Ada warmly."}}
        assert written == {"description": "Compose.", "messages": [message]}


@asynchronous
async def test_subscribers_get_every_change_and_nothing_else() -> None:
    hub = without_registry()
    prompt = {"name": "greet", "description": "Compose.", "function_id": "demo::greet"}
    async with at_work(hub), sdk(address(hub)) as early, sdk(address(hub), "late") as late:
        await early.hear("skills::on-change")  # before a worker provides the trigger type
        async with registry(hub):
            await late.hear("prompts::on-change")
            for function, payload in [
                ("skills::register", {"id": "a", "skill": "# a"}),
                ("skills::register", {"id": "a", "skill": "# b"}),
                ("skills::unregister", {"id": "nobody"}),
                ("skills::unregister", {"id": "a"}),
                ("prompts::register", prompt),
                ("prompts::unregister", {"name": "greet"}),
                ("prompts::unregister", {"name": "greet"}),
            ]:
                await late.trigger(function, payload)
            register = {"op": "register", "id": "a"}
            await early.until_heard(register, register, {"op": "unregister", "id": "a"})
            await late.until_heard({"op": "register", "name": "greet"}, {"op": "unregister", "name": "greet"})


@asynchronous
async def test_documents_are_stored_in_the_scopes_of_the_engine_and_survive_the_worker() -> None:
    hub = without_registry()
    settings = Settings(Scopes("texts", "commands"))
    prompt = {"name": "greet", "description": "Compose.", "function_id": "demo::greet"}
    async with at_work(hub), sdk(address(hub)) as theirs:
        async with registry(hub, settings):
            await theirs.trigger("skills::register", {"id": "a", "skill": "# a"})
            await theirs.trigger("prompts::register", prompt)
        (kept,) = await theirs.trigger("state::list", {"scope": "texts"})
        assert {**kept, "registered_at": ""} == {"id": "a", "skill": "# a", "registered_at": ""}
        assert len(await theirs.trigger("state::list", {"scope": "commands"})) == 1
        await theirs.trigger("state::set", {"scope": "texts", "key": "odd", "value": {"no": "skill"}})
        async with registry(hub, settings):
            assert [one["id"] for one in (await theirs.trigger("skills::list"))["skills"]] == ["a"]


@asynchronous
async def test_a_section_has_the_timeout_of_the_state() -> None:
    hub = without_registry()
    async with at_work(hub), registry(hub, Settings(state_timeout_ms=50)), sdk(address(hub)) as theirs:

        async def never(data: Any) -> None:
            await asyncio.Event().wait()

        await theirs.offer("demo::never", never)
        error = await theirs.refused("skill::fetch", {"uri": "iii://fn/demo/never"})
        assert "trigger demo::never" in str(error)


@pytest.mark.parametrize(
    ("text", "settings", "warnings"),
    [
        ("", Settings(), 0),
        ("scopes: {skills: a, prompts: b}\nstate_timeout_ms: 5\n", Settings(Scopes("a", "b"), 5), 0),
        ("scopes: {prompts: b}\n", Settings(Scopes(prompts="b")), 0),
        ("state_timeout_ms: 7\nother: 1\n", Settings(state_timeout_ms=7), 0),
        ("scopes: {skills: 1, prompts: b}\n", Settings(Scopes(prompts="b")), 1),
        ("scopes: [a]\nstate_timeout_ms: soon\n", Settings(), 2),
        ("state_timeout_ms: -1\n", Settings(), 1),
        ("- a\n", Settings(), 1),
        ("scopes: {skills: [\n", Settings(), 1),
        ("\x00", Settings(), 1),
        (None, Settings(), 1),
    ],
)
def test_missing_and_invalid_settings_of_a_file_have_their_defaults(
    text: str | None, settings: Settings, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.yaml"
    if text is not None:
        file.write_text(text)

    assert read_settings(file) == settings
    # Others may log meanwhile, such as the SDK of a test before this one.
    ours = [record.levelname for record in caplog.records if record.name.startswith("waypost.")]
    assert ours == ["WARNING"] * warnings


def test_the_manifest_contains_the_defaults() -> None:
    outcome = manifest()

    assert list(outcome) == ["name", "version", "description", "default_config", "supported_targets"]
    assert outcome["default_config"] == {
        "scopes": {"skills": "skills", "prompts": "prompts"},
        "state_timeout_ms": 10_000,
    }
