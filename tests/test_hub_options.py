"""The keyword arguments of a hub that stand for settings."""

from __future__ import annotations

import pytest

from waypost.errors import DefinitionError
from waypost.hub_options import settings_from_options


def test_a_limit_may_be_smaller_in_python_than_in_a_file() -> None:
    assert settings_from_options({"max_body": 1}).server.max_body_bytes == 1


@pytest.mark.parametrize("value", [0, -1, "4 KiB", 1.5])
def test_the_error_for_a_wrong_limit_names_the_allowed_values(value: object) -> None:
    with pytest.raises(DefinitionError, match=r"^Hub: max_body must be a whole number of at least 1, not "):
        settings_from_options({"max_body": value})
