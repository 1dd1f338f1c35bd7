"""Keys through the API: created, listed without their secrets, refused at once when revoked."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.api.conftest import ADMIN, AGENT, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost.identity import digest

KEYS = "/api/v1/keys"


@asynchronous
async def test_a_created_key_authenticates_its_principal_with_its_permissions() -> None:
    async with operating() as operator:
        assert (await operator.ask("POST", KEYS, {"id": "none"})).status == 201
        made = await operator.fetch("POST", KEYS, {"id": "ci", "roles": ["agent"], "permissions": ["deploy"]})
        assert made.keys() == {"id", "key"}
        assert made["key"].startswith("wp_")
        called = await operator.use("deploy", key=made["key"])
        assert called.json["result"]["content"][0]["text"] == "ci"


@asynchronous
async def test_a_revoked_key_is_refused_at_once() -> None:
    async with operating() as operator:
        key = (await operator.fetch("POST", KEYS, {"id": "ci", "roles": ["admin"]}))["key"]
        assert (await operator.ask("GET", KEYS, key=key)).status == 200
        assert await operator.fetch("DELETE", f"{KEYS}/ci") == {"id": "ci", "status": "revoked"}
        assert await operator.refused("GET", KEYS, key=key) == (401, "Invalid API key")
        assert (await operator.use("add", {"a": 1, "b": 2}, key=key)).status == 401
        status, sentence = await operator.refused("DELETE", f"{KEYS}/ci")
        assert (status, sentence) == (404, "There is no key for ci that could be revoked.")


@asynchronous
async def test_listed_keys_contain_neither_secrets_nor_hashes() -> None:
    async with operating() as operator:
        made = [await operator.fetch("POST", KEYS, {"id": name}) for name in ("b", "a")]
        await operator.fetch("DELETE", f"{KEYS}/b")
        call = await operator.ask("GET", KEYS)
        listed = json.loads(call.body)["keys"]
        assert [(key["id"], key["source"], key["status"]) for key in listed] == [
            ("a", "store", "good"),
            ("agent", "configuration", "good"),
            ("b", "store", "revoked"),
            ("root", "configuration", "good"),
        ]
        assert listed[1]["scopes"] == ["notes:write"]
        for secret in (ADMIN, AGENT, *(one["key"] for one in made)):
            assert secret not in call.body.decode()
            assert digest(secret)[:20] not in call.body.decode()


@asynchronous
async def test_a_key_can_expire() -> None:
    async with operating() as operator:
        wanted = {"id": "ci", "expiresAt": "2099-12-31T23:00:00+01:00"}
        await operator.fetch("POST", KEYS, wanted)
        listed = {key["id"]: key for key in (await operator.fetch("GET", KEYS))["keys"]}
        assert listed["ci"]["expiresAt"] == "2099-12-31T22:00:00Z"
        late = {"id": "late", "expiresAt": "2001-01-01T00:00:00Z"}
        assert await operator.refused("POST", KEYS, late) == (400, "expiresAt is in the past.")


@pytest.mark.parametrize(
    "wanted",
    [
        {"id": ""},
        {"id": "a/b"},
        {"id": "ci\n"},
        {"id": "x" * 129},
        {"id": "anonymous"},
        {"id": "ci", "expiresAt": "2099-01-01T00:00:00"},
        {"id": "ci", "expiresAt": 1},
        {"id": "ci", "roles": "admin"},
        {"id": "ci", "roles": [""]},
        {"id": "ci", "hash": "sha256:00"},
        {},
    ],
    ids=str,
)
@asynchronous
async def test_an_invalid_key_definition_is_refused(wanted: dict[str, Any]) -> None:
    async with operating() as operator:
        assert (await operator.refused("POST", KEYS, wanted))[0] == 400


@pytest.mark.parametrize("taken", ["ci", "root", "hub"])
@asynchronous
async def test_an_id_that_is_taken_is_refused(taken: str) -> None:
    async with operating() as operator:
        await operator.fetch("POST", KEYS, {"id": "ci"})
        status, sentence = await operator.refused("POST", KEYS, {"id": taken})
        assert status == 409
        assert taken in sentence


@asynchronous
async def test_a_key_can_be_created_again_after_it_was_revoked() -> None:
    async with operating() as operator:
        old = (await operator.fetch("POST", KEYS, {"id": "ci"}))["key"]
        await operator.fetch("DELETE", f"{KEYS}/ci")
        new = (await operator.fetch("POST", KEYS, {"id": "ci"}))["key"]
        assert [(await operator.use("note", key=key)).status for key in (old, new)] == [401, 403]


@asynchronous
async def test_a_key_of_the_configuration_is_not_revoked_here() -> None:
    async with operating() as operator:
        status, sentence = await operator.refused("DELETE", f"{KEYS}/agent")
        assert (status, sentence) == (409, "The key of agent is in the configuration; remove it there.")
        assert (await operator.refused("DELETE", f"{KEYS}/nobody"))[0] == 404


@asynchronous
async def test_a_key_is_in_no_log_no_record_and_no_other_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hub = operated_hub()
    async with operating(hub) as operator:
        key = (await operator.fetch("POST", KEYS, {"id": "ci", "roles": ["admin"]}))["key"]
        await operator.use("skill:shell", {"secret": key}, key=key)
        await operator.use("skill:shell", {"secret": key})
        said = [
            (await operator.ask("GET", path, key=key)).body.decode()
            for path in (KEYS, "/api/v1/audit", "/api/v1/audit/verify", "/metrics", "/api/v1/tools")
        ]
        assert any('"skill:shell"' in text for text in said)
        kept = [document.value for document in await hub.store.keys.page("", 10)]
        assert key not in json.dumps([said, kept, caplog.text])
