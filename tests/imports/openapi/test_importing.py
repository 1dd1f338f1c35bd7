"""APIs imported from OpenAPI documents: calls to a real server, and findings about documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.gateway.hubs import HEAD, call_structured, called, findings, using
from tests.imports.openapi.documents import PETS, document
from tests.outbound.internet import site
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from waypost import Hub
from waypost.testing import TestClient


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with the request; some paths answer with a status."""
    if request.path.rpartition("/")[2].isdigit():
        return web.json_response({"said": "no"}, status=int(request.path.rpartition("/")[2]))
    if request.method == "DELETE":
        return web.Response(status=204)
    seen: dict[str, Any] = {
        "method": request.method,
        "path": request.raw_path,
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "body": await request.text(),
    }
    return web.json_response(seen)


def api(folder: Path, port: int, written: Any = PETS, more: str = "", **connection: Any) -> str:
    """A configuration that imports an API."""
    (folder / "api.json").write_text(json.dumps(written))
    settings = {
        "kind": "rest",
        "baseUrl": f"http://127.0.0.1:{port}/v1",
        "openapi": "api.json",
        "allowPrivate": True,
        "headers": {"X-Key": "a-secret-key"},
        **connection,
    }
    return f"connections: {{pets: {json.dumps(settings)}}}\nproxy: {{import: [{{connection: pets{more}}}]}}\n"


@asynccontextmanager
async def pets(folder: Path, **options: Any) -> AsyncIterator[tuple[Hub, TestClient]]:
    """A hub that has imported an API, and a client of it."""
    async with site(echo) as port, using(folder, api(folder, port, **options)) as running:
        yield running


@asynchronous
async def test_every_operation_is_a_tool(tmp_path: Path) -> None:
    async with pets(tmp_path) as (_, client):
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        ours = {name for name in tools if name.startswith("pets.")}
        names = {"pets.listPets", "pets.addPet", "pets.get_pets_petId", "pets.removePet", "pets.changePet"}
        assert ours == names
        assert tools["pets.listPets"]["annotations"] == {"openWorldHint": True, "readOnlyHint": True}


@asynchronous
async def test_arguments_are_sent_in_the_path_the_query_and_headers(tmp_path: Path) -> None:
    async with pets(tmp_path) as (hub, _):
        arguments: dict[str, Any] = {"limit": 3, "kind": ["a b", "c&d"], "X-Trace": "t"}
        answer = (await called(hub, "pets.listPets", **arguments)).structured
        assert answer["status"] == 200
        assert answer["body"]["path"] == "/v1/pets?limit=3&kind=a%20b&kind=c%26d"
        assert answer["body"]["headers"]["x-trace"] == "t"
        assert answer["body"]["headers"]["x-key"] == "[REDACTED]"  # it was sent, and is redacted in the answer
        assert answer["body"]["headers"]["idempotency-key"].startswith("call_")


@asynchronous
async def test_a_path_variable_is_encoded_as_one_segment(tmp_path: Path) -> None:
    async with pets(tmp_path) as (hub, _):
        seen = (await called(hub, "pets.get_pets_petId", petId="a/..b?c#d é")).structured["body"]
        assert seen["path"] == "/v1/pets/a%2F..b%3Fc%23d%20%C3%A9"
        for other in ("..", "..;", "a/../b"):
            assert (await called(hub, "pets.get_pets_petId", petId=other)).is_error
        assert (await called(hub, "pets.get_pets_petId", petId="")).is_error


@asynchronous
async def test_a_body_is_sent_as_json(tmp_path: Path) -> None:
    async with pets(tmp_path) as (hub, _):
        seen = (await called(hub, "pets.addPet", body={"name": "Rex"})).structured["body"]
        assert (json.loads(seen["body"]), seen["headers"]["content-type"]) == ({"name": "Rex"}, "application/json")
        missing = await called(hub, "pets.addPet")
        assert "body" in missing.text
        assert missing.is_error
        changed = (await called(hub, "pets.changePet", petId="x", body={"a": None})).structured["body"]
        assert changed["headers"]["content-type"] == "application/merge-patch+json"
        bare = (await called(hub, "pets.changePet", petId="x")).structured["body"]
        assert (bare["body"], "merge" in bare["headers"].get("content-type", "")) == ("", False)
        assert (await called(hub, "pets.removePet", petId="x")).structured == {"status": 204, "body": ""}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, "permanent_error"),
        (408, "timeout"),
        (429, "rate_limited"),
        (500, "transient_error"),
        (504, "timeout"),
    ],
)
@asynchronous
async def test_a_status_is_an_error_with_its_class(tmp_path: Path, status: int, kind: str) -> None:
    async with pets(tmp_path) as (hub, _):
        answer = await called(hub, "pets.get_pets_petId", petId=str(status))
        assert answer.is_error
        assert answer.text.startswith(f'pets answered {status}: {{"said": "no"}} [{kind}]')
        assert ("try again" in answer.text) == (kind != "permanent_error")


@asynchronous
async def test_a_private_address_is_refused_unless_allowed(tmp_path: Path) -> None:
    async with pets(tmp_path, allowPrivate=False) as (hub, _):
        answer = await called(hub, "pets.listPets")
        assert "is a private address" in answer.text
        assert answer.is_error


@asynchronous
async def test_a_header_value_cannot_inject_headers(tmp_path: Path) -> None:
    async with pets(tmp_path) as (hub, _):
        answer = await called(hub, "pets.listPets", **{"X-Trace": "a\r\nX-Key: other"})
        assert answer.is_error
        assert "crashed" not in answer.text


@asynchronous
async def test_include_exclude_prefix_and_tags_select_and_name_operations(tmp_path: Path) -> None:
    more = ", prefix: shop, include: [listPets, get_pets_petId, addPet], exclude: [addPet], tags: [outside]"
    async with pets(tmp_path, more=more) as (hub, client):
        names = {tool["name"] for tool in await client.list_tools() if "." in tool["name"]}
        assert {name for name in names if name.startswith("shop.")} == {"shop.listPets", "shop.get_pets_petId"}
        assert hub.registry.tool("shop.listPets").metadata.tags == ("pets", "outside")


@asynchronous
async def test_an_agent_finds_an_operation_and_follows_its_links(tmp_path: Path) -> None:
    async with pets(tmp_path) as (_, client):
        found = await call_structured(client, "gateway.search", query="list pets")
        assert found["results"][0]["item"]["id"] == "pets.listPets"
        (link,) = (await call_structured(client, "gateway.describe", id="pets.listPets"))["links"]
        begun = await call_structured(client, link["method"], **link["args"])
        (submit,) = begun["links"]
        after = await call_structured(client, "workflow.submit", **{**submit["args"], "arguments": {"limit": 1}})
        assert after["context"]["lastResult"]["body"]["path"] == "/v1/pets?limit=1"


@asynchronous
async def test_a_changed_document_is_imported_again(tmp_path: Path) -> None:
    async with pets(tmp_path) as (hub, _):
        (tmp_path / "api.json").write_text(json.dumps(document({"operationId": "later"})))
        await until(lambda: "pets.later" in hub.registry.tools)
        assert "pets.listPets" not in hub.registry.tools
        (tmp_path / "api.json").write_text("{")
        assert not await hub.reload()
        assert "pets.later" in hub.registry.tools


def noted(folder: Path, **options: Any) -> list[tuple[str, int, str]]:
    text = api(folder, 1, **options)
    return [(one.code, one.line - HEAD.count("\n"), one.message) for one in findings(folder, text)]


def test_an_unusable_document_is_one_finding(tmp_path: Path) -> None:
    (found,) = noted(tmp_path, written={"openapi": "3.1.0", "paths": 3})
    assert found == ("CFG071", 2, "nothing of `pets` can be taken over: `paths` is not a mapping")
    (missing,) = noted(tmp_path, openapi="none.json")
    assert missing[2].endswith("none.json` cannot be read: no such file or directory")
    (none,) = noted(tmp_path, openapi=None)
    assert none[0] == "CFG071"


def test_the_number_of_findings_about_left_out_operations_is_limited(tmp_path: Path) -> None:
    paths = {f"/{n}": {"get": {"parameters": 1}} for n in range(30)}
    found = noted(tmp_path, written={"openapi": "3.1.0", "paths": paths})
    assert [code for code, _, _ in found] == ["CFG072"] * 11
    assert found[-1][2] == "20 more operations are left out"


def test_an_unknown_operation_name_is_a_finding(tmp_path: Path) -> None:
    found = noted(tmp_path, more=", include: [listPets, lost], exclude: [gone]")
    assert [(code, message) for code, _, message in found] == [
        ("CFG073", "`pets` has no operation `lost`"),
        ("CFG073", "`pets` has no operation `gone`"),
    ]


def test_two_operations_with_one_name_are_a_finding(tmp_path: Path) -> None:
    paths = {"/a": {"get": {"operationId": "x y"}}, "/b": {"get": {"operationId": "x/y"}}}
    ((code, _, message),) = noted(tmp_path, written={"openapi": "3.1.0", "paths": paths})
    assert (code, message) == ("CFG072", "the operation `x/y` is left out: another one is called pets.x_y already")


@pytest.mark.parametrize(
    ("connection", "why"),
    [("{}", "there is no connection `a`"), ("{a: {kind: cli, command: echo}}", "`a` is a program")],
)
def test_a_connection_without_operations_is_refused(tmp_path: Path, connection: str, why: str) -> None:
    (found,) = findings(tmp_path, f"connections: {connection}\nproxy: {{import: [{{connection: a}}]}}\n")
    assert found.code == "CFG070"
    assert why in found.message


def test_a_clash_with_something_exposed_is_an_error(tmp_path: Path) -> None:
    text = api(tmp_path, 1).replace("proxy: {", "proxy: {expose: [{name: pets.addPet}], ")
    (found,) = findings(tmp_path, text)
    assert (found.code, found.key) == ("CFG043", "proxy.import[0]")
