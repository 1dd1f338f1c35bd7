import math

import pytest

from waypost.config.nodes import resolve


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "No", "y", "12:30", "190:20:30", "2026-07-28", "1_000", "0b1", "<<"]
)
def test_values_that_only_yaml_1_1_converts_stay_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
    ],
)
def test_the_core_schema_is_followed(text: str, value: object) -> None:
    resolved = resolve(text)
    assert resolved == value
    assert type(resolved) is type(value)


def test_not_a_number_is_a_number() -> None:
    value = resolve(".nan")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_a_very_long_number_stays_text() -> None:
    assert resolve("9" * 10_000) == "9" * 10_000
