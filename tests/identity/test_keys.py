"""Static keys: found by their hash, refused when unknown, revoked or expired."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from tests.policy.issuer import NOW, Clock
from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError
from waypost.identity import Key, Keys, digest, keys, new_key


def test_a_new_key_is_256_random_bits_with_the_prefix_wp() -> None:
    key = new_key()

    assert key.startswith("wp_")
    assert len(base64.urlsafe_b64decode(key.removeprefix("wp_") + "=")) == 32
    assert len({new_key() for _ in range(100)}) == 100


def test_a_digest_is_the_sha256_of_the_key() -> None:
    assert digest("wp_x") == "sha256:" + hashlib.sha256(b"wp_x").hexdigest()


def test_a_key_identifies_its_principal() -> None:
    key = new_key()
    known = Keys([Key("ci", digest(key), roles=("agent",), permissions=("deploy",), scopes=("read",))])

    assert known.principal(key) == Principal("ci", ("agent",), ("deploy",), ("read",))


@pytest.mark.parametrize("other", ["", "wp_", "wp_" + "o" * 43, "ä", "sha256:"])
def test_an_unknown_key_is_refused(other: str) -> None:
    assert Keys([Key("ci", digest(new_key()))]).principal(other) is None


def test_the_hash_of_a_key_is_not_accepted_as_a_key() -> None:
    hashed = digest(new_key())

    assert Keys([Key("ci", hashed)]).principal(hashed) is None


def test_a_revoked_key_is_refused() -> None:
    key, other = new_key(), new_key()
    known = Keys([Key("ci", digest(key)), Key("me", digest(other))])

    assert known.revoke("ci") == 1
    assert known.revoke("ci") == 0
    assert known.principal(key) is None
    assert known.principal(other) is not None


def test_an_expired_key_is_refused() -> None:
    key, clock = new_key(), Clock()
    expires = datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=10)
    known = Keys([Key("ci", digest(key), expires=expires)], clock=clock)

    clock.now = NOW + 9.9
    assert known.principal(key) is not None
    clock.now = NOW + 10
    assert known.principal(key) is None


def test_two_keys_may_share_an_id_during_rotation() -> None:
    old, new = new_key(), new_key()
    known = Keys([Key("ci", digest(old)), Key("ci", digest(new))])

    assert known.principal(old) == known.principal(new)
    assert known.revoke("ci") == 2
    assert len(known) == 0


def test_keys_are_not_kept_in_clear() -> None:
    key = new_key()
    known = Keys([Key("ci", digest(key))])
    known.principal(key)

    assert key not in repr(vars(known)) + repr(list(known))


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(keys, "compare_digest", compare)
    key = new_key()
    hashed = hashlib.sha256(key.encode()).digest()

    assert Keys([Key("ci", digest(key))]).principal(key) is not None
    assert compared == [(hashed, hashed)]


@pytest.mark.parametrize("wrong", ["", "abc", "a" * 64, "sha256:" + "g" * 64, "sha256:" + "A" * 64, "md5:" + "0" * 64])
def test_a_malformed_hash_is_a_definition_error(wrong: str) -> None:
    with pytest.raises(DefinitionError, match="sha256"):
        Key("ci", wrong)


@pytest.mark.parametrize("wrong", ["", "anonymous"])
def test_a_key_needs_a_valid_principal_id(wrong: str) -> None:
    with pytest.raises(DefinitionError):
        Key(wrong, digest("x"))


def test_an_expiry_needs_a_time_zone() -> None:
    with pytest.raises(DefinitionError, match="time zone"):
        Key("ci", digest("x"), expires=datetime(2030, 1, 1))


def test_two_keys_cannot_have_the_same_hash() -> None:
    with pytest.raises(DefinitionError, match="same hash"):
        Keys([Key("a", digest("x")), Key("b", digest("x"))])
