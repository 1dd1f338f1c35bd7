"""The secret of a hub: created once, then read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from waypost.errors import StoreUnavailable, WaypostError
from waypost.stores.directory import derive_key, hub_secret


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYPOST_SECRET", raising=False)


def test_a_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    secret = hub_secret(tmp_path / "data")
    assert len(secret) == 32
    assert hub_secret(tmp_path / "data") == secret
    assert (tmp_path / "data" / "secret").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["secret"]


def test_concurrent_creators_of_a_secret_get_the_same_one(tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(hub_secret(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_secret(tmp_path)
    monkeypatch.setenv("WAYPOST_SECRET", "s" * 40)
    assert hub_secret(tmp_path) == b"s" * 40


def test_a_short_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(WaypostError, match="too short"):
        hub_secret(tmp_path)
    monkeypatch.setenv("WAYPOST_SECRET", "short")
    with pytest.raises(WaypostError, match="at least 32 bytes"):
        hub_secret(tmp_path)


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        hub_secret(tmp_path / "file" / "data")


def test_a_derived_key_is_that_of_rfc_5869() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    secret = bytes(range(40))
    for purpose in ("audit chain", "credentials", "request state"):
        reference = HKDF(SHA256(), 32, None, f"waypost {purpose}".encode()).derive(secret)
        assert derive_key(secret, purpose) == reference
