import json
from typing import Any

import pytest

from waypost.protocol.responses import EMPTY, Answer, ModernEncoder, extend, to_legacy_result
from waypost.wire.definitions import Implementation
from waypost.wire.params import SERVER_INFO

INFO = Implementation("hub", "1.0", title="The hub")
WHO = {"name": "hub", "version": "1.0", "title": "The hub"}


def modern(answer: Answer, *, cacheable: bool, ttl_ms: int = 0) -> Any:
    return json.loads(ModernEncoder(INFO, ttl_ms).to_result(answer, cacheable=cacheable))


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"{}", {"x": 1}), (b'{"a":{}}', {"a": {}, "x": 1}), (b'{"a":"}"}', {"a": "}", "x": 1})],
)
def test_more_members_join_an_encoded_object(body: bytes, expected: Any) -> None:
    assert json.loads(extend(body, b'"x":1')) == expected


def test_a_session_client_gets_the_body_unchanged() -> None:
    assert to_legacy_result(Answer(b'{"tools":[]}')) == b'{"tools":[]}'
    assert to_legacy_result(EMPTY) == b"{}"


def test_a_session_client_gets_meta_and_nothing_else_of_the_newer_era() -> None:
    assert json.loads(to_legacy_result(Answer(b'{"content":[]}', {"trace": 7}))) == {
        "content": [],
        "_meta": {"trace": 7},
    }


def test_a_stateless_result_has_its_type_and_the_server_info() -> None:
    assert modern(EMPTY, cacheable=False) == {"resultType": "complete", "_meta": {SERVER_INFO: WHO}}


@pytest.mark.parametrize(("private", "scope"), [(False, "public"), (True, "private")])
@pytest.mark.parametrize("meta", [None, {"trace": 7}])
def test_a_cacheable_result_has_a_ttl_and_a_scope(private: bool, scope: str, meta: Any) -> None:
    message = modern(Answer(b'{"tools":[]}', meta, private), cacheable=True, ttl_ms=1500)
    assert message == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 1500,
        "cacheScope": scope,
        "_meta": {**(meta or {}), SERVER_INFO: WHO},
    }


def test_a_result_that_is_not_cacheable_carries_no_cache_fields() -> None:
    message = modern(Answer(b'{"content":[]}', {"trace": 7}, private=True), cacheable=False)
    assert message == {"content": [], "resultType": "complete", "_meta": {"trace": 7, SERVER_INFO: WHO}}


def test_a_handler_cannot_override_the_server_info() -> None:
    message = modern(Answer(b"{}", {SERVER_INFO: {"name": "evil"}}), cacheable=False)
    assert message["_meta"] == {SERVER_INFO: WHO}
