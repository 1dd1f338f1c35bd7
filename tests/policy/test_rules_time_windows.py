"""Time windows: hours of the day in a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import Clock
from tests.policy.ruled import reason


def at(text: str, zone: str = "UTC") -> Clock:
    """A stopped clock at a time in a time zone."""
    return Clock(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def test_the_default_window_denies_midnight_to_six_utc() -> None:
    text = "time window: denied between 00:00 and 06:00 UTC"

    assert reason("time_window", clock=at("2026-05-01T00:00:00")) == text
    assert reason("time_window", clock=at("2026-05-01T05:59:59")) == text
    assert reason("time_window", clock=at("2026-05-01T06:00:00")) == ""
    assert reason("time_window", clock=at("2026-05-01T23:59:59")) == ""


@pytest.mark.parametrize(("hour", "denied"), [(21, False), (22, True), (23, True), (0, True), (5, True), (6, False)])
def test_a_window_may_span_midnight(hour: int, denied: bool) -> None:
    found = reason("time_window", {"deny_start_hour": 22, "deny_end_hour": 6}, clock=at(f"2026-05-01T{hour:02}:30:00"))

    assert found == ("time window: denied between 22:00 and 06:00 UTC" if denied else "")


@given(st.integers(0, 24), st.integers(0, 24), st.integers(0, 23))
def test_a_window_and_its_complement_share_no_hour(start: int, end: int, hour: int) -> None:
    clock = at(f"2026-05-01T{hour:02}:00:00")
    inside = bool(reason("time_window", {"deny_start_hour": start, "deny_end_hour": end}, clock=clock))
    outside = bool(reason("time_window", {"deny_start_hour": end, "deny_end_hour": start}, clock=clock))

    if start % 24 == end % 24:
        assert inside == outside or {start, end} == {0, 24}
    else:
        assert inside != outside


def test_an_empty_window_denies_nothing_and_a_whole_day_denies_everything() -> None:
    noon = at("2026-05-01T12:00:00")

    assert reason("time_window", {"deny_start_hour": 12, "deny_end_hour": 12}, clock=noon) == ""
    assert reason("time_window", {"deny_start_hour": 0, "deny_end_hour": 24}, clock=noon) != ""


def test_hours_are_those_of_the_time_zone() -> None:
    config = {"deny_start_hour": 9, "deny_end_hour": 17, "timezone": "Asia/Tokyo"}

    text = "time window: denied between 09:00 and 17:00 Asia/Tokyo"
    assert reason("time_window", config, clock=at("2026-05-01T00:00:00")) == text
    assert reason("time_window", config, clock=at("2026-05-01T09:00:00")) == ""


@pytest.mark.parametrize(
    ("moment", "denied"),
    [
        ("2026-03-29T00:59:00+00:00", False),  # 01:59 in winter
        ("2026-03-29T01:00:00+00:00", False),  # 03:00 in summer: the hour from 02:00 does not exist
        ("2026-10-25T00:00:00+00:00", True),  # 02:00 in summer
        ("2026-10-25T01:00:00+00:00", True),  # 02:00 again, in winter
        ("2026-10-25T02:00:00+00:00", False),  # 03:00 in winter
    ],
)
def test_skipped_and_repeated_hours_follow_the_wall_clock(moment: str, denied: bool) -> None:
    clock = Clock(datetime.fromisoformat(moment).timestamp())
    config = {"deny_start_hour": 2, "deny_end_hour": 3, "timezone": "Europe/Berlin"}

    assert bool(reason("time_window", config, clock=clock)) == denied


def test_a_window_for_one_permission_does_not_apply_to_others() -> None:
    config, clock = {"permission": "web_read"}, at("2026-05-01T01:00:00")

    assert reason("time_window", config, clock=clock, permission="web_read")
    assert not reason("time_window", config, clock=clock)
