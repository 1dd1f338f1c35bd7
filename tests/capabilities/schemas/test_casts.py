from datetime import date, datetime, time
from enum import Enum

from waypost.capabilities.schemas import forms


class Mode(Enum):
    PLAIN = "plain"
    FIRST = 1


def test_only_integral_floats_become_integers() -> None:
    assert [type(forms.to_integer(value)) for value in (1.0, 1)] == [int, int]


def test_values_become_enum_members() -> None:
    assert [forms.to_member(Mode)(value) for value in ("plain", 1, 1.0)] == [Mode.PLAIN, Mode.FIRST, Mode.FIRST]


def test_dates_are_parsed() -> None:
    assert forms.to_date("2026-01-02") == date(2026, 1, 2)
    assert forms.to_time("10:30:00") == time(10, 30)
    assert forms.to_datetime("2026-01-02T10:30:00") == datetime(2026, 1, 2, 10, 30)


def test_a_record_keeps_declared_names_in_declared_order() -> None:
    cast = forms.to_record(
        [
            forms.Member("b", None, None),
            forms.Member("a", forms.to_list(forms.to_integer), None),
            forms.Member("c", None, forms.fallback([])),
        ]
    )

    assert list(cast({"a": [1.0], "z": 1, "b": 2}).items()) == [("b", 2), ("a", [1]), ("c", [])]
    assert cast({})["c"] is not cast({})["c"]
