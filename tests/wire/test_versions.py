from __future__ import annotations

from itertools import product

import pytest

from waypost.wire.versions import (
    ALL,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    V2026_07_28,
    at_least,
    is_modern,
    negotiate,
)


def test_versions_stand_in_the_order_of_their_dates() -> None:
    assert list(ALL) == sorted(ALL)
    assert set(LEGACY).isdisjoint(MODERN)
    assert LEGACY[-1] == LATEST_LEGACY


@pytest.mark.parametrize(("version", "other"), list(product(ALL, ALL)))
def test_versions_compare_like_their_dates(version: str, other: str) -> None:
    assert at_least(version, other) == (version >= other)


def test_an_unknown_version_does_not_compare() -> None:
    with pytest.raises(KeyError):
        at_least("2030-01-01", V2026_07_28)


def test_only_the_newest_is_stateless() -> None:
    assert [version for version in ALL if is_modern(version)] == [V2026_07_28]
    assert not is_modern("2030-01-01")


@pytest.mark.parametrize("version", LEGACY)
def test_a_known_session_version_is_agreed_on(version: str) -> None:
    assert negotiate(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "2030-01-01", "1.0", ""])
def test_any_other_wish_is_answered_with_the_newest_session_version(version: str) -> None:
    assert negotiate(version) == LATEST_LEGACY


def test_only_an_offered_version_is_negotiated() -> None:
    assert negotiate(LATEST_LEGACY, LEGACY[:2]) == LEGACY[1]
