"""Exporting, importing and copying workflows."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workflows.conftest import flow, model
from waypost.config.models import Workflow
from waypost.errors import WorkflowRefused
from waypost.workflows.workflows import copy_definition, from_document, to_document

NO_DOCUMENTS: list[Any] = [{}, [], None, "x", 1]
STEPS = {
    "description": "News of the day.",
    "enabled": False,
    "steps": [
        {"name": "get", "skill": "rss_collector", "config": {"url": "https://a.example", "timeout_ms": 3}},
        {
            "skill": "llm_transform",
            "prompt_template": "Tell {input}",
            "llm_tier": "light",
            "input_from": 1,
            "routes": [{"branch": "on_error", "goto": "last"}, {"branch": "default", "goto": 3}],
            "timeout_ms": 5000,
            "on_circuit_open": "fallback",
            "fallback_skill": "calm",
            "on_missing_skill": "skip",
            "idempotent": True,
        },
        {"name": "last", "capability": "notify"},
    ],
}
STATES = flow(
    {
        "draft": {
            "goal": "A text",
            "transitions": {
                "send": {
                    "target": "sent",
                    "guards": [{"kind": "not", "guard": {"kind": "expr", "expr": "$.context.bad == true"}}],
                    "executor": {"kind": "rest", "connection": "api", "path": "/x"},
                    "output": {"id": "$.output.body.id"},
                    "reliability": {"retry": {"maxAttempts": 3}},
                }
            },
        },
        "sent": {"terminal": True, "outcome": "succeeded"},
    },
    timeoutMs=60_000,
    onTimeout={"target": "sent"},
    inputSchema={"type": "object"},
)


@pytest.mark.parametrize("written", [STEPS, STATES], ids=["steps", "states"])
def test_an_exported_workflow_is_imported_unchanged(written: Any) -> None:
    workflow = model(written)

    document = json.loads(json.dumps(to_document("Tech News", workflow)))

    assert from_document(document) == ("Tech News", workflow)


@given(
    st.builds(
        Workflow,
        description=st.text(),
        enabled=st.booleans(),
        tags=st.lists(st.text()),
        examples=st.lists(
            st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(), st.lists, max_leaves=5)
        ),
    )
)
def test_any_workflow_can_be_exported_and_imported(workflow: Workflow) -> None:
    assert from_document(msgspec.json.decode(msgspec.json.encode(to_document("x", workflow)))) == ("x", workflow)


def test_a_document_has_a_version_the_workflow_and_its_steps() -> None:
    document = to_document("Tech News", model(STEPS))

    assert set(document) == {"version", "workflow", "steps"}
    assert document["version"] == 1
    assert document["workflow"]["name"] == "Tech News"
    assert [step["skill"] for step in document["steps"]] == ["rss_collector", "llm_transform", None]
    assert to_document("x", model(STATES))["workflow"]["states"].keys() == {"draft", "sent"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        *[(data, "Unsupported or missing version: this hub reads version 1") for data in NO_DOCUMENTS],
        ({"version": 2, "workflow": {"name": "x"}, "steps": []}, "Unsupported or missing version: this hub reads"),
        ({"version": "1", "workflow": {"name": "x"}, "steps": []}, "Unsupported or missing version: this hub reads"),
        ({"version": True, "workflow": {"name": "x"}, "steps": []}, "Unsupported or missing version: this hub reads"),
        ({"version": 1, "steps": []}, "Workflow name is required"),
        ({"version": 1, "workflow": [], "steps": []}, "Workflow name is required"),
        ({"version": 1, "workflow": {"name": " "}, "steps": []}, "Workflow name is required"),
        ({"version": 1, "workflow": {"name": 3}, "steps": []}, "Workflow name is required"),
        ({"version": 1, "workflow": {"name": "x"}}, 'Missing or invalid "steps" field'),
        ({"version": 1, "workflow": {"name": "x"}, "steps": {}}, 'Missing or invalid "steps" field'),
        ({"version": 1, "workflow": {"name": "x"}, "steps": ["a"]}, 'Missing or invalid "steps" field'),
        ({"version": 1, "workflow": {"name": "x", "tags": 3}, "steps": []}, "The workflow cannot be read: Expected"),
    ],
)
def test_an_invalid_document_is_refused_with_the_reason(data: Any, sentence: str) -> None:
    with pytest.raises(WorkflowRefused) as refused:
        from_document(data)

    assert refused.value.message.startswith(sentence)
    assert refused.value.code == "INVALID_DEFINITION"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["version", "workflow", "steps", "name", "config"]), inner)
        ),
    )
)
def test_any_json_is_imported_or_refused(data: Any) -> None:
    for given_data in (data, {"version": 1, "workflow": {"name": "x", "states": data}, "steps": data}):
        with suppress(WorkflowRefused):
            from_document(given_data)


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ([], "News"),
        (["News"], "News (imported 1)"),
        (["News", "News (imported 1)"], "News (imported 2)"),
        (["News", "News (imported 2)"], "News (imported 1)"),
    ],
)
def test_a_name_that_is_taken_gets_a_number(taken: list[str], name: str) -> None:
    assert from_document(to_document("News", model(STEPS)), taken)[0] == name


def test_a_document_of_another_hub_is_imported() -> None:
    step = {
        "position": 1,
        "name": "Get",
        "skill": "rss_collector",
        "llm_model": None,
        "input_from": None,
        "config": {"on_circuit_open": "skip", "on_missing_skill": "skip", "timeout_ms": 900, "url": "x"},
        "routes": [],
    }
    document = {
        "version": 1,
        "workflow": {"name": "News", "description": "d", "schedule": "0 7 * * *", "metadata": {}},
        "steps": [step],
        "resources": [],
    }

    (found,) = from_document(document)[1].steps

    assert (found.on_circuit_open, found.on_missing_skill, found.timeout_ms) == ("skip", "skip", 900)
    assert found.config == {"url": "x"}


def test_a_copy_has_a_name_of_its_own_and_cannot_be_started() -> None:
    workflow = model({**STEPS, "enabled": True})

    name, copy = copy_definition("News", workflow)

    assert name == "News (copy)"
    assert copy == msgspec.structs.replace(workflow, enabled=False)
    assert copy_definition("News", workflow, ["News", "News (copy)"])[0] == "News (copy 2)"
