"""Which heads are remembered, and for how many bytes behind them."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.transports.http.fast_uvicorn import Heads


def scope(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    plain = {"http_version": "1.1", "method": "POST", "path": "/a", "raw_path": b"/a", "query_string": b""}
    return {**plain, "headers": list(headers), **more}


def test_a_head_is_known_with_the_length_of_its_body() -> None:
    heads = Heads()
    heads.learn(b"head", scope((b"content-length", b"12")))
    found = heads.get(b"head")
    assert found is not None
    assert found.length == 12
    assert found.about["path"] == "/a"


@pytest.mark.parametrize(
    "given",
    [
        scope((b"transfer-encoding", b"chunked")),
        scope((b"expect", b"100-continue")),
        scope((b"upgrade", b"websocket")),
        scope((b"connection", b"close")),
        scope((b"content-length", b"17000")),
        scope((b"content-length", b"+5")),
        scope(http_version="1.0"),
        scope(method="HEAD"),
    ],
)
def test_a_head_after_which_anything_special_comes_is_not_remembered(given: dict[str, Any]) -> None:
    heads = Heads()
    heads.learn(b"head", given)
    assert heads.get(b"head") is None


def test_a_long_head_is_not_remembered() -> None:
    heads = Heads()
    heads.learn(b"x" * 5000, scope())
    assert heads.get(b"x" * 5000) is None


def test_only_so_many_heads_are_remembered() -> None:
    heads = Heads()
    for number in range(2000):
        heads.learn(b"%d" % number, scope())
    assert 0 < sum(heads.get(b"%d" % number) is not None for number in range(2000)) <= 512
