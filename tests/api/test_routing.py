"""From a path to its route."""

from __future__ import annotations

import json

import pytest

from tests.api.conftest import ADMIN, operated_hub
from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import HOST, Call
from waypost.api.api import ROUTES
from waypost.api.routing import Match


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/v1/keys/ci", "ci"),
        ("/api/v1/keys/a%2Fb%3Fc%23d", "a/b?c#d"),
        ("/api/v1/keys/..%2Fx", "../x"),
        ("/api/v1/keys/%E2%82%AC", "€"),
        ("/api/v1/k%65ys/ci", "ci"),
    ],
)
def test_a_variable_is_one_path_segment_with_any_characters(path: str, name: str) -> None:
    found = ROUTES.find("DELETE", path)

    assert isinstance(found, Match)
    assert (found.route.path, found.variables) == ("/api/v1/keys/{id}", {"id": name})


@pytest.mark.parametrize("path", ["/api/v1/keys/", "/api/v1/keys/a/b", "/api/v1/nothing", "/api/v1/keys/ci/"])
def test_an_unknown_path_has_no_route(path: str) -> None:
    assert ROUTES.find("DELETE", path) == []


def test_another_method_finds_the_allowed_methods() -> None:
    assert ROUTES.find("DELETE", "/api/v1/keys") == ["GET", "POST"]


@pytest.mark.parametrize("raw", [b"/api/v1/keys/a%2Fb", None])
@pytest.mark.parametrize("mounted", ["", "/team", "/a/b"])
@asynchronous
async def test_a_name_is_read_below_a_prefix_too(mounted: str, raw: bytes | None) -> None:
    hub = operated_hub()
    path = f"{mounted}/api/v1/keys/" + ("ci" if raw is None else "a/b")
    headers = {"host": HOST, "authorization": f"Bearer {ADMIN}"}
    scope = {
        "type": "http",
        "method": "DELETE",
        "path": path,
        "root_path": mounted,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        **({} if raw is None else {"raw_path": mounted.encode() + raw}),
    }
    try:
        answer = await Call(hub.asgi(), scope, [b""]).done()
    finally:
        await hub.stop()

    name = "ci" if raw is None else "a/b"
    assert (answer.status, json.loads(answer.body)["error"]) == (
        404,
        f"There is no key for {name} that could be revoked.",
    )
