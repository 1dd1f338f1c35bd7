from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.config.conftest import Folder
from tests.config.test_loader import EVERYTHING
from waypost.config import schema
from waypost.config.checks import snake_case


def fits(value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(schema()).is_valid(value)


def test_the_schema_is_a_valid_schema_of_the_2020_12_draft() -> None:
    document = schema()
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["title"] == "Waypost configuration"
    assert jsonschema_rs.meta.is_valid(document)


def test_every_mapping_is_closed_and_every_setting_described() -> None:
    for definition in schema()["$defs"].values():
        for name, setting in definition.get("properties", {}).items():
            assert setting.get("description") or (name == "kind" and is_one_word(setting))
        if definition["type"] == "object":
            assert definition["additionalProperties"] is False


def is_one_word(setting: dict[str, Any]) -> bool:
    """Whether a setting is the tag of one of several models."""
    return len({snake_case(word) for word in setting["anyOf"][0]["enum"]}) == 1


def test_a_workflow_that_loads_fits_the_schema() -> None:
    import yaml

    found = sorted((Path(__file__).parents[2] / "docs" / "examples" / "workflows").glob("*.yaml"))
    assert found
    for path in found:
        jsonschema_rs.Draft202012Validator(schema()).validate(yaml.safe_load(path.read_text()))


def test_guards_and_executors_may_be_nested_in_the_schema() -> None:
    inner: dict[str, Any] = {"kind": "not", "guard": {"kind": "all_of", "guards": [{"kind": "role", "role": "a"}]}}
    runs: dict[str, Any] = {"kind": "parallel", "branches": [{"kind": "pipeline", "steps": [{"kind": "noop"}]}]}
    assert fits(released(guards=[inner], executor=runs))
    inner["guard"]["guards"][0]["roll"] = "b"
    assert not fits(released(guards=[inner]))
    runs["branches"][0]["steps"][0]["kind"] = "nop"
    assert not fits(released(executor=runs))


def released(**transition: Any) -> dict[str, Any]:
    """A configuration with one transition."""
    states = {"a": {"transitions": {"go": {"target": "b", **transition}}}, "b": {"terminal": True}}
    return {"workflows": {"release": {"initialState": "a", "states": states}}}


def test_a_file_that_loads_fits_the_schema() -> None:
    import yaml

    data = yaml.safe_load(EVERYTHING)
    jsonschema_rs.Draft202012Validator(schema()).validate(data)


@pytest.mark.parametrize(
    "value",
    [
        {"sever": {}},
        {"server": {"port": "8420"}},
        {"server": {"port": 65536}},
        {"server": {"surface": "x"}},
        {"toolkits": [{"category": "x"}]},
        {"prompts": {"a": {}}},
        {"server": {"tool_timeout_ms": "long"}},
        {"connections": {"api": {"kind": "rest"}}},
        {"connections": {"wiki": {"url": "https://wiki.example"}}},
        [],
    ],
)
def test_a_file_that_does_not_load_does_not_fit_the_schema(value: Any) -> None:
    assert not fits(value)


def test_a_variable_may_be_a_number_a_boolean_or_a_word() -> None:
    assert fits({"server": {"port": "${PORT}", "allowAnonymousRemote": "${OPEN:-false}", "surface": "${SURFACE}"}})
    assert fits({"mcp": {"toolTimeoutMs": "${T}"}})


@pytest.mark.parametrize(
    "text",
    [
        "mcp: {tool_timeout_ms: 3}",
        "server: {tool_timeout_ms: 3, allow_anonymous_remote: true}",
        "skills: {timeout_ms: 5, limits: {result_bytes: 4096}}",
        "connections: {build: {kind: cli, command: make, working_directory: .}}",
        "connections: {api: {kind: rest, base_url: https://api.example}}",
        "workflows: {w: {steps: [{name: a, capability: hello.echo, timeoutMs: 5}]}}",
        "workflows: {w: {initial_state: s, timeout_ms: 5, states: {s: {terminal: true}}}}",
        "capabilities: {c: {executor: {kind: noop}}}\nproxy: {expose: [{name: e, executor: {capability: c}}]}",
        "capabilities: {c: {executor: {kind: noop}, guards: [{kind: allOf, guards: [{kind: role, role: a}]}]}}",
        "audit: {sink: stdout}",
        "version: 1",
        'version: "1.0.0"\nstore: {kind: sqlite, path: a.db}\ndiscovery: {enabled: true}',
    ],
)
def test_every_spelling_that_loads_fits_the_schema(text: str, folder: Folder) -> None:
    import yaml

    folder.load(text)
    jsonschema_rs.Draft202012Validator(schema()).validate(yaml.safe_load(text))


def test_each_call_returns_a_new_schema() -> None:
    schema()["$defs"].clear()
    assert schema()["$defs"]
