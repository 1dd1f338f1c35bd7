"""Requests to the API: which are accepted, what is found, and how refusals look."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.api.conftest import ADMIN, AGENT, Operator, operated_hub, operating
from tests.api.releasing import releasing
from tests.protocol.conftest import Json, asynchronous
from waypost import Hub
from waypost.api.api import ROUTES
from waypost.api.audit import AuditFilter
from waypost.api.routing import Route, explain_invalid
from waypost.errors import StoreUnavailable
from waypost.runtime.runtime import Runtime

EVERY: dict[tuple[str, str], Route] = {
    (route.method, route.path.replace("{id}", "x").replace("{name}", "x")): route for route in ROUTES.all
}


ROLES = ("viewer", "operator", "admin")


@pytest.mark.parametrize(("verb", "path"), [place for place, route in EVERY.items() if not route.any_key])
@asynchronous
async def test_everything_needs_its_role_or_a_greater_one(verb: str, path: str) -> None:
    needed = EVERY[verb, path].role
    async with operating() as operator:
        assert await operator.refused(verb, path, key=None) == (401, "Missing Authorization header")
        status, sentence = await operator.refused(verb, path, key=AGENT)
        assert (status, sentence) == (403, f"agent does not have the role {needed}.")
        for role in ROLES[: ROLES.index(needed)]:
            key = await operator.hub.keys.create(f"{role}-{verb}", roles=[role])
            assert (await operator.refused(verb, path, key=key))[0] == 403


def test_reads_need_viewer_and_changes_of_rights_or_code_need_admin() -> None:
    assert {route.role for route in ROUTES.all if route.method == "GET"} == {"viewer"}
    assert {route.name for route in ROUTES.all if route.role == "operator"} == {
        "breakers/{name}/reset",
        "catalog/hide",
        "catalog/show",
        "runs/{id}/cancel",
        "runs/{id}/resolve",
        "runs/{id}/submit",
        "runs/batch",
        "sessions/{id}",
        "skills/{name}/reload",
        "skills/{name}/rollback",
        "tasks/{id}/cancel",
        "tools/{name}/call",
        "upstreams/{name}/restart",
        "workflows/{id}/disable",
        "workflows/{id}/enable",
    }
    assert {route.name for route in ROUTES.all if route.method == "POST" and route.role == "viewer"} == {
        "policies/test",
        "workflows/{id}/simulate",
    }


@asynchronous
async def test_an_operator_cancels_another_principals_run_and_a_viewer_only_reads_it() -> None:
    async with releasing() as releases:
        run = await releases.start()
        viewer = await releases.hub.keys.create("vera", roles=["viewer"])
        operator = await releases.hub.keys.create("otto", roles=["operator"])

        assert (await releases.fetch("GET", f"/api/v1/runs/{run}", key=viewer))["workflowId"] == run
        refused = await releases.refused("POST", f"/api/v1/runs/{run}/cancel", {}, key=viewer)
        assert refused == (403, "vera does not have the role operator.")
        cancelled = await releases.fetch("POST", f"/api/v1/runs/{run}/cancel", {}, key=operator)
        assert cancelled["status"] == "cancelled"


@asynchronous
async def test_an_invalid_key_is_refused() -> None:
    async with operating() as operator:
        assert await operator.refused("GET", "/api/v1/keys", key="wp_nobody") == (401, "Invalid API key")


@asynchronous
async def test_a_hub_without_keys_refuses_every_operator() -> None:
    hub = Hub("bare", version="1")
    assert hub.runtime.authentication.allows_anonymous
    async with operating(hub) as operator:
        assert await operator.refused("GET", "/api/v1/keys", key=None) == (401, "Missing Authorization header")
        assert await operator.refused("GET", "/api/v1/keys", key="wp_made-up") == (401, "Invalid API key")


@asynchronous
async def test_an_unknown_path_is_404_with_a_pointer_to_the_openapi_document() -> None:
    async with operating() as operator:
        for path in ("/api/v1/nothing", "/api/v2/keys", "/api/", "/api/v1/keys/", "/api/v1/keys/a/b"):
            status, sentence = await operator.refused("GET", path)
            assert status == 404
            assert "/api/openapi.json" in sentence


@pytest.mark.parametrize(
    ("verb", "path", "takes"),
    [
        ("PUT", "/api/v1/keys", "GET, POST"),
        ("GET", "/api/v1/keys/ci", "DELETE"),
        ("GET", "/api/v1/policies/test", "POST"),
        ("PUT", "/api/v1/skills/greet", "DELETE, GET, POST"),
        ("POST", "/metrics", "GET"),
        ("DELETE", "/api/openapi.json", "GET"),
    ],
)
@asynchronous
async def test_a_method_that_is_not_allowed_is_405_with_those_that_are(verb: str, path: str, takes: str) -> None:
    async with operating() as operator:
        status, sentence = await operator.refused(verb, path, body={})
        assert (status, sentence) == (405, f"{path} does not allow {verb}; use {takes}.")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b'"x"', b'{"id": 1}', b'{"id": "a", "extra": 1}', b"\xff\xfe", b"[" * 100_000, b'{"id": "a"} x'],
)
@asynchronous
async def test_a_body_that_does_not_fit_is_400(raw: bytes) -> None:
    async with operating() as operator:
        status, sentence = await operator.refused("POST", "/api/v1/keys", raw=raw)
        assert status == 400
        assert sentence.startswith("Invalid body: ")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "colour=red", "decision=maybe", "x", "limit=%FF"]
)
@asynchronous
async def test_a_query_that_does_not_fit_is_400(query: str) -> None:
    async with operating() as operator:
        status, _ = await operator.refused("GET", f"/api/v1/audit?{query}")
        assert status == 400


class Broken(Runtime):
    """A runtime whose access to keys fails."""

    @property
    def keys(self) -> Any:
        """Raise the failure."""
        raise self.failure

    failure: Exception = RuntimeError("wp_secret")


@asynchronous
async def test_a_failure_is_answered_without_its_details() -> None:
    hub = operated_hub()
    async with operating(hub) as operator:
        await operator.fetch("GET", "/api/v1/tools")  # the first request starts the hub, which needs its keys
        hub.runtime.__class__ = Broken
        status, sentence = await operator.refused("GET", "/api/v1/keys")
        assert (status, sentence) == (500, "The hub failed to answer; see its log.")


@asynchronous
async def test_an_unavailable_store_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "failure", StoreUnavailable("The store is away."))
    hub = operated_hub()
    async with operating(hub) as operator:
        await operator.fetch("GET", "/api/v1/tools")  # the first request starts the hub, which needs its keys
        hub.runtime.__class__ = Broken
        assert await operator.refused("GET", "/api/v1/keys") == (503, "The store is away.")


@asynchronous
async def test_tools_are_listed_with_their_owners() -> None:
    async with operating() as operator:
        tools = (await operator.fetch("GET", "/api/v1/tools"))["tools"]
        assert [tool["name"] for tool in tools] == ["add", "deploy", "note", "skill:shell"]
        assert tools[0] == {"name": "add", "owner": None, "category": "Maths", "hidden": False}
        assert tools[3]["hidden"] is True


# The OpenAPI document


async def document(operator: Operator) -> Json:
    found: Json = await operator.fetch("GET", "/api/openapi.json", key=None)
    return found


@asynchronous
async def test_the_document_needs_no_key_and_names_every_route() -> None:
    async with operating() as operator:
        said = await document(operator)
        assert said["openapi"] == "3.1.0"
        named = {(verb.upper(), path) for path, verbs in said["paths"].items() for verb in verbs}
        assert named == {(route.method, route.path) for route in ROUTES.all} | {
            ("GET", "/metrics"),
            ("GET", "/api/openapi.json"),
        }
        ids = [operation["operationId"] for verbs in said["paths"].values() for operation in verbs.values()]
        assert len(ids) == len(set(ids))


def contents(node: Any) -> list[Json]:
    """Every part of a document that has a schema and an example."""
    if isinstance(node, list):
        return [found for part in node for found in contents(part)]
    if not isinstance(node, dict):
        return []
    own = [node] if "example" in node and "schema" in node else []
    return own + [found for part in node.values() for found in contents(part)]


@asynchronous
async def test_the_examples_of_the_document_fit_its_schemas() -> None:
    async with operating() as operator:
        said = await document(operator)
        found = contents(said["paths"])
        bodies = sum("body" in route.hints for route in ROUTES.all)
        assert len(found) == len(ROUTES.all) + bodies
        for part in found:
            assert part["example"] is not None
            schema = {**part["schema"], "components": said["components"]}
            jsonschema.Draft202012Validator(schema).validate(part["example"])


@asynchronous
async def test_the_schemas_of_the_document_are_schemas() -> None:
    async with operating() as operator:
        for schema in (await document(operator))["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)


@asynchronous
async def test_answers_fit_the_schemas_of_the_document() -> None:
    async with operating() as operator:
        said = await document(operator)
        await operator.fetch("POST", "/api/v1/keys", {"id": "ci", "expiresAt": "2099-01-01T00:00:00Z"})
        await operator.use("add", {"a": 1, "b": 2})
        for path in ("/api/v1/keys", "/api/v1/policies", "/api/v1/audit", "/api/v1/audit/verify", "/api/v1/tools"):
            answer = await operator.fetch("GET", path)
            schema = said["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator({**schema, "components": said["components"]}).validate(answer)


def test_no_path_leads_to_two_routes() -> None:
    for verb, path in EVERY:
        assert sum(route.method == verb and route.match(path.split("/")) is not None for route in ROUTES.all) == 1


@asynchronous
async def test_keys_do_not_appear_in_refusals() -> None:
    async with operating() as operator:
        for path in ("/api/v1/keys", "/api/v1/nothing", "/api/v1/policies/test"):
            call = await operator.ask("PUT", path)
            assert ADMIN not in json.dumps([call.body.decode(), *call.headers.values()])


@pytest.mark.parametrize(
    ("said", "explained"),
    [
        ("Expected `int` <= 500 - at `$.walks`", "`walks` must be at most 500"),
        ("Expected `str` of length <= 10 - at `$.name`", "`name` must have at most 10 characters"),
        ("Invalid enum value 'no' - at `$.decision`", "`decision` cannot be 'no'; use allow or deny"),
        ("Object missing required field `name`", "Object missing required field `name`"),
    ],
)
def test_an_invalid_value_is_explained_in_words(said: str, explained: str) -> None:
    assert explain_invalid(said, AuditFilter) == explained


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({"host": "evil.example"}, b"", 403, "This Host is not allowed here"),
        ({"origin": "https://evil.example"}, b"", 403, "This Origin is not allowed here"),
        ({}, b" " * 4_194_305, 413, "maxBodyBytes"),
    ],
)
@asynchronous
async def test_what_is_refused_before_a_route_is_reached_has_the_body_of_the_document(
    headers: dict[str, str], body: bytes, status: int, said: str
) -> None:
    async with operating() as operator:
        document = await operator.fetch("GET", "/api/openapi.json")
        schema = document["paths"]["/api/v1/keys"]["post"]["responses"][str(status)]["content"]["application/json"]
        call = await operator.ask("POST", "/api/v1/keys", raw=body, more=headers)
        answer = json.loads(call.body)
        assert (call.status, said in answer["error"]) == (status, True)
        whole = {**schema["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(whole).validate(answer)
