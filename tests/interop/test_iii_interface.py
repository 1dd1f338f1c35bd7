"""The interface of the registry for the SDKs of the iii project, and all of its error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.iii_desk import Publisher, Registry, publishing
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher

pytestmark = pytest.mark.timeout(120)

DECLARED = json.loads((Path(__file__).parents[1] / "documents" / "interface.json").read_text())
LARGEST = 262_144
REGISTER, READ, FETCH, PROMPT = "skills::register", "skills::resources-read", "skill::fetch", "prompts::register"
LONG = "/".join(["a" * 64] * 16)


def test_thirteen_functions_and_two_kinds_of_trigger_are_listed_with_their_schemas(publisher: Publisher) -> None:
    listed = publisher.call("engine::functions::list")["functions"]
    found = [
        {
            "name": one["function_id"],
            "description": one["description"],
            "metadata": one["metadata"],
            "request_schema": one["request_format"],
            "response_schema": one["response_format"],
        }
        for one in listed
        if one["function_id"].startswith(("skills::", "prompts::", "skill::"))
    ]
    assert len(found) == 13
    assert sorted(found, key=_name) == sorted(DECLARED["functions"], key=_name)
    kinds = publisher.call("engine::triggers::list")["triggers"]
    answer = {(one["id"], one["description"]) for one in kinds}
    assert answer >= {(one["name"], one["description"]) for one in DECLARED["triggers"]}


def _name(declared: dict[str, Any]) -> str:
    return str(declared["name"])


@pytest.mark.parametrize(
    ("function", "payload", "text"),
    [
        (REGISTER, {"id": f"{LONG}/a", "skill": "x"}, "id too long (1041 chars; max 1024): "),
        (REGISTER, {"id": "a/b c", "skill": "x"}, 'invalid id (segment 2 of "a/b c"): segment may only contain '),
        (REGISTER, {"id": "ü", "skill": "x"}, "segment may only contain lowercase ASCII letters, digits, '-' and '_'"),
        (REGISTER, {"id": "a/" + "b" * 65, "skill": "x"}, "segment too long (65 chars; max 64)"),
        (REGISTER, {"id": "Bad", "skill": ""}, "invalid id"),
        (REGISTER, {"id": "a"}, "missing field `skill`"),
        (REGISTER, {"skill": "x"}, "missing field `id`"),
        ("skills::unregister", {"id": ""}, "id must be non-empty"),
        ("skills::unregister", {"id": "fn/a"}, 'id may not have "fn" as its first segment'),
        (READ, {"uri": "iii://"}, "Empty resource id: iii://"),
        (READ, {"uri": "brain"}, "Resource URI must start with iii://: brain"),
        (READ, {"uri": "III://brain"}, "Resource URI must start with iii://: III://brain"),
        (READ, {"uri": "iii:///brain"}, "Resource URI may not contain empty segments"),
        (READ, {"uri": "iii://a//b"}, "Resource URI may not contain empty segments"),
        (READ, {"uri": "iii://a/"}, "Resource URI may not contain empty segments"),
        (READ, {"uri": "iii://fn/Mine/page"}, 'invalid section URI segment "Mine": segment may only contain'),
        (READ, {"uri": "iii://fn/a.b"}, 'invalid section URI segment "a.b": segment may only contain'),
        (READ, {"uri": "iii://skills?x=1"}, "segment may only contain lowercase ASCII letters"),
        (READ, {"uri": "iii://fn/state"}, "trigger state: "),
        (READ, {}, "missing field `uri`"),
        (FETCH, {"uris": []}, "Provide uri or a non-empty uris array"),
        (FETCH, {"uri": "skill://brain"}, "Invalid URI (must start with iii://): skill://brain"),
        (PROMPT, {"name": "", "description": "", "function_id": ""}, "name must be non-empty"),
        (PROMPT, {"name": "a", "description": "", "function_id": ""}, "description must be non-empty"),
        (PROMPT, {"name": "a", "description": "b", "function_id": ""}, "function_id must be non-empty"),
        (PROMPT, {"name": "a", "description": "b"}, "missing field `function_id`"),
        ("prompts::unregister", {"name": "A"}, "name may only contain lowercase ASCII letters"),
        ("prompts::mcp-get", {"name": "nobody"}, "Prompt not found: nobody"),
    ],
)
def test_an_invalid_call_is_refused_with_the_reason(
    publisher: Publisher, function: str, payload: dict[str, Any], text: str
) -> None:
    assert text in publisher.refusal(function, **payload)
    assert publisher.call("skills::list") == {"skills": []}
    assert publisher.call("prompts::list") == {"prompts": []}


@pytest.mark.parametrize(("letter", "count"), [("x", LARGEST), ("ü", LARGEST // 2), ("🎉", LARGEST // 4)])
def test_a_body_is_measured_in_bytes(publisher: Publisher, letter: str, count: int) -> None:
    publisher.call(REGISTER, id="full", skill=letter * count)
    assert publisher.call("skills::list")["skills"][0]["bytes"] == LARGEST
    answer = publisher.refusal(REGISTER, id="full", skill=letter * count + "x")
    assert "skill body too large (262145 bytes; max 262144)" in answer
    assert publisher.call("skills::list")["skills"][0]["bytes"] == LARGEST


def test_the_longest_id_has_1024_bytes_and_a_text_of_spaces_is_one(publisher: Publisher) -> None:
    longest = f"{LONG[:-15]}"
    assert len(longest) == 1024
    publisher.call(REGISTER, id=longest, skill="  ")
    assert publisher.call(READ, uri=f"iii://{longest}")["contents"][0]["text"] == "  "


def test_a_worker_may_not_change_documents_of_another_connected_worker(hub: Registry, tmp_path: Path) -> None:
    with publishing("node", hub.workers, tmp_path, "second") as second:
        with publishing("python", hub.workers, tmp_path, "first") as first:
            first.call(REGISTER, id="owned", skill="# First")
            answer = second.refusal(REGISTER, id="owned", skill="# Second")
            assert 'The skill "owned" belongs to worker:first' in answer
            assert "belongs to worker:first" in second.refusal("skills::unregister", id="owned")
            assert second.call("skills::list")["skills"][0] | {"bytes": 0, "registered_at": ""} == {
                "id": "owned",
                "bytes": 0,
                "registered_at": "",
                "owner": "worker:first",
                "stale": False,
            }
        assert second.call("skills::list")["skills"][0]["stale"] is True
        second.call(REGISTER, id="owned", skill="# Second")
        assert second.call("skills::list")["skills"][0]["owner"] == "worker:second"
        second.clear()
