import base64
import hashlib
import time
from typing import Any

import msgspec
import pytest

from waypost.errors import InvalidParams
from waypost.protocol.rounds import Seal, bind_state

MINE = bind_state("ada", "tools/call", "deploy", {"env": "prod"})


def test_a_sealed_state_can_be_opened_again() -> None:
    seal = Seal()
    state = [2, {"who": {"action": "accept"}}, {"step": "ünï"}]
    assert seal.open(seal.close(state, MINE), MINE) == state


def test_a_sealed_state_is_encrypted_and_different_each_time() -> None:
    seal = Seal(b"secret")
    texts = {seal.close({"password": "plugh"}, MINE) for _ in range(5)}
    assert len(texts) == 5
    for text in texts:
        assert text.startswith("v2.")
        assert b"plugh" not in base64.urlsafe_b64decode(text.removeprefix("v2."))


def test_a_sealed_state_opens_only_with_the_same_secret() -> None:
    text = Seal(b"secret").close(1, MINE)
    assert Seal(b"secret").open(text, MINE) == 1
    for other in (Seal(b"other"), Seal(), Seal(None)):
        with pytest.raises(InvalidParams, match="not valid"):
            other.open(text, MINE)


@pytest.mark.parametrize(
    "other",
    [
        bind_state("eve", "tools/call", "deploy", {"env": "prod"}),
        bind_state("ada", "prompts/get", "deploy", {"env": "prod"}),
        bind_state("ada", "tools/call", "destroy", {"env": "prod"}),
        bind_state("ada", "tools/call", "deploy", {"env": "test"}),
        bind_state("ada", "tools/call", "deploy", {}),
        bind_state("ada", "tools/call", "deploy", None),
        bind_state("ada", "tools/call", "deploy", {"env": ["prod"]}),
    ],
)
def test_a_sealed_state_is_refused_for_another_request(other: bytes) -> None:
    seal = Seal()
    with pytest.raises(InvalidParams, match="not valid for this request"):
        seal.open(seal.close(1, MINE), other)


def test_the_order_of_arguments_does_not_matter() -> None:
    assert bind_state("a", "m", "n", {"x": 1, "y": {"p": 1, "q": 2}}) == bind_state(
        "a", "m", "n", {"y": {"q": 2, "p": 1}, "x": 1}
    )


def test_parts_of_a_binding_are_kept_apart() -> None:
    assert bind_state("a", "b", "cd", None) != bind_state("a", "bc", "d", None)


def test_every_altered_byte_is_detected() -> None:
    seal = Seal()
    sealed = base64.urlsafe_b64decode(seal.close({"a": 1}, MINE).removeprefix("v2."))
    for place in range(len(sealed)):
        altered = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(InvalidParams):
            seal.open("v2." + base64.urlsafe_b64encode(altered).decode(), MINE)


@pytest.mark.parametrize(
    "text", ["", "v1.", "v1.AAAA", "x", "v1.=", "v2.AAAA", "v3.AAAA", "ü", "v1." + "A" * 200, "\ud800", "\0"]
)
def test_a_text_that_was_never_sealed_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams, match="not valid"):
        Seal().open(text, MINE)


@pytest.mark.parametrize("change", ["-TAMPERED", "A", " ", "\n"])
def test_added_or_removed_text_is_detected(change: str) -> None:
    seal = Seal()
    text = seal.close(1, MINE)
    with pytest.raises(InvalidParams):
        seal.open(text + change, MINE)
    with pytest.raises(InvalidParams):
        seal.open(text[:-5], MINE)


def test_a_sealed_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("waypost.protocol.rounds.time.time", lambda: now)
    seal = Seal()
    text = seal.close(1, MINE)
    now += 599
    assert seal.open(text, MINE) == 1
    now += 2
    with pytest.raises(InvalidParams, match="expired"):
        seal.open(text, MINE)


def test_the_size_of_a_sealed_state_is_limited() -> None:
    big: Any = "x" * (64 * 1024)
    with pytest.raises(InvalidParams, match="limit"):
        Seal().close(big, MINE)


def test_a_state_that_was_sealed_before_an_upgrade_is_still_open() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    plain = msgspec.msgpack.encode((time.time() + 60, {"a": 1}))
    old_key = hashlib.sha256(b"waypost request state" + b"s" * 32).digest()
    sealed = bytes(12) + AESGCM(old_key).encrypt(bytes(12), plain, MINE)

    assert Seal(b"s" * 32).open("v1." + base64.urlsafe_b64encode(sealed).decode(), MINE) == {"a": 1}
