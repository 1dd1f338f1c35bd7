from typing import Any

import pytest
from msgspec import UNSET, Raw

from tests.protocol.conftest import Json, assorted_hub, asynchronous
from waypost import Context, Hub
from waypost.errors import InvalidParams, MethodNotFound
from waypost.protocol.exchange import CLOSED_OUTLET, Exchange
from waypost.protocol.methods import dispatch, find_method, route
from waypost.wire import params
from waypost.wire.messages import decode
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

BOTH = pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])


def exchange(version: str = LATEST_LEGACY) -> Exchange:
    return Exchange(1, version, CLOSED_OUTLET)


@pytest.mark.parametrize(
    ("name", "legacy", "modern"),
    [
        ("tools/call", True, True),
        ("prompts/get", True, True),
        ("resources/read", True, True),
        ("ping", True, False),
        ("logging/setLevel", True, False),
        ("server/discover", False, True),
        ("subscriptions/listen", False, True),
        ("nobody/knows", False, False),
        ("", False, False),
    ],
)
def test_each_era_has_its_methods(name: str, legacy: bool, modern: bool) -> None:
    engine = assorted_hub().engine
    assert (find_method(engine, name, LATEST_LEGACY) is not None) is legacy
    assert (find_method(engine, name, V2026_07_28) is not None) is modern


@BOTH
def test_a_method_of_a_capability_that_is_not_offered_does_not_exist(version: str) -> None:
    engine = Hub("empty", version="1").engine
    assert find_method(engine, "prompts/get", version) is None
    assert find_method(engine, "resources/list", version) is None
    assert find_method(engine, "tools/list", version) is not None


@asynchronous
async def test_an_unknown_method_is_refused_without_a_hook() -> None:
    engine = assorted_hub().engine
    with pytest.raises(MethodNotFound, match="nobody/knows"):
        await dispatch(engine, "nobody/knows", None, UNSET, params.Params(), exchange())
    with pytest.raises(MethodNotFound, match="nobody/knows"):
        await route(engine, "nobody/knows", {}, exchange())


@BOTH
def test_a_hook_that_forwards_a_request_gets_the_result_as_data(version: str) -> None:
    @asynchronous
    async def run() -> None:
        engine = assorted_hub().engine
        result = await route(engine, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, exchange(version))
        assert result["content"] == [{"type": "text", "text": "3"}]

    run()


@asynchronous
async def test_a_hook_that_forwards_invalid_values_is_refused() -> None:
    engine = assorted_hub().engine
    with pytest.raises(InvalidParams):
        await route(engine, "tools/call", {"name": 5}, exchange())


@pytest.mark.parametrize(
    ("message", "body", "meta"),
    [
        (None, {}, None),
        ({}, {}, None),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "_meta": {"b": 2}}, {"a": 1}, {"b": 2}),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_the_return_value_of_a_hook_is_the_response(message: Any, body: Json, meta: Json | None, waits: bool) -> None:
    hub = assorted_hub()
    seen: list[Any] = []

    def at_once(method: str, given: Json, ctx: Context) -> Any:
        seen.append((method, given, ctx.request_id))
        return message

    async def later(method: str, given: Json, ctx: Context) -> Any:
        return at_once(method, given, ctx)

    hub.on("request")(later if waits else at_once)

    @asynchronous
    async def run() -> None:
        given = Raw(b'{"x": [1]}')
        answer = await dispatch(hub.engine, "any/thing", None, given, params.Params(), exchange())
        assert decode(answer.body) == body
        assert answer.meta == meta

    run()
    assert seen == [("any/thing", {"x": [1]}, 1)]


@asynchronous
async def test_the_response_of_a_hook_is_private() -> None:
    hub = assorted_hub()
    hub.on("request")(lambda method, given, ctx: {})
    answer = await dispatch(hub.engine, "resources/read", None, UNSET, params.Params(), exchange())
    assert answer.private
