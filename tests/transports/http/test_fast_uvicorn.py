"""The shortcuts through uvicorn: what they need of it, which heads are cached, and the heads of whole responses."""

from __future__ import annotations

import sys
from inspect import signature
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from waypost.transports.http import fast_uvicorn
from waypost.transports.http.fast_uvicorn import FastConnection, HeadCache, _response_head, check_uvicorn
from waypost.transports.http.server import find_fast_protocol


def test_the_installed_uvicorn_has_the_private_names_of_the_shortcuts(caplog: pytest.LogCaptureFixture) -> None:
    check_uvicorn()
    assert find_fast_protocol() is FastConnection
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["timeout_keep_alive_handler", "_unset_keepalive_if_required"])
def test_a_method_that_uvicorn_no_longer_has_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, name)
    with pytest.raises(ImportError, match=f"HttpToolsProtocol.{name}"):
        check_uvicorn()


def test_an_attribute_that_connections_no_longer_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: HttpToolsProtocol, config: Any) -> None:
        self.config = config

    monkeypatch.setattr(HttpToolsProtocol, "__init__", init)
    with pytest.raises(ImportError, match=r"HttpToolsProtocol\.pipeline"):
        check_uvicorn()


def test_an_attribute_that_is_new_in_requests_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: dict[str, Any] = dict.fromkeys(signature(RequestResponseCycle).parameters)

    class Cycle(RequestResponseCycle):
        def __init__(self) -> None:
            super().__init__(**nothing)
            self.trailers = False

    monkeypatch.setattr(fast_uvicorn, "RequestResponseCycle", Cycle)
    with pytest.raises(ImportError, match=r"RequestResponseCycle\.trailers$"):
        check_uvicorn()


def test_without_the_shortcuts_a_public_protocol_serves_and_one_line_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, fast_uvicorn.__name__, None)
    assert find_fast_protocol() is None
    (warning,) = caplog.messages
    assert warning.startswith("HTTP is served without shortcuts, at lower speed (uvicorn ")


def scope(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    plain = {"http_version": "1.1", "method": "POST", "path": "/a", "raw_path": b"/a", "query_string": b""}
    return {**plain, "headers": list(headers), **more}


def test_a_head_is_cached_with_the_length_of_its_body() -> None:
    heads = HeadCache()
    heads.add(b"head", scope((b"content-length", b"12")))
    found = heads.get(b"head")
    assert found is not None
    assert found.length == 12
    assert found.scope["path"] == "/a"


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
def test_a_head_with_special_framing_is_not_cached(given: dict[str, Any]) -> None:
    heads = HeadCache()
    heads.add(b"head", given)
    assert heads.get(b"head") is None


def test_a_long_head_is_not_cached() -> None:
    heads = HeadCache()
    heads.add(b"x" * 5000, scope())
    assert heads.get(b"x" * 5000) is None


def test_at_most_512_heads_are_cached() -> None:
    heads = HeadCache()
    for number in range(2000):
        heads.add(b"%d" % number, scope())
    assert 0 < sum(heads.get(b"%d" % number) is not None for number in range(2000)) <= 512


def test_the_head_of_a_response_ends_where_the_length_stands() -> None:
    head = _response_head(200, ((b"Content-Type", b"a/b"),))
    assert head == b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: "


@pytest.mark.parametrize("header", [(b"x", b"a\r\nb: c"), (b"a b", b"x")])
def test_a_header_that_would_be_two_is_left_to_uvicorn_to_refuse(header: tuple[bytes, bytes]) -> None:
    assert _response_head(200, (header,)) is None
