"""The keyword arguments of a hub that stand for settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from waypost import Hub
from waypost.errors import DefinitionError
from waypost.hub_options import settings_from_options


def test_a_limit_may_be_smaller_in_python_than_in_a_file() -> None:
    assert settings_from_options({"max_body": 1}).server.max_body_bytes == 1


@pytest.mark.parametrize("value", [0, -1, "4 KiB", 1.5])
def test_the_error_for_a_wrong_limit_names_the_allowed_values(value: object) -> None:
    with pytest.raises(DefinitionError, match=r"^Hub: max_body must be a whole number of at least 1, not "):
        settings_from_options({"max_body": value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("instructions", 5, "text"),
        ("website_url", 5, "text"),
        ("secret", "x", "bytes"),
        ("store", Path("hub.db"), "a URL or a Store"),
        ("data_dir", 5, "a path"),
        ("lifespan", 5, "a function that returns an async context manager"),
        ("workers", 49134, "True, False or a mapping of settings"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_where_the_hub_is_made(name: str, value: Any, expected: str) -> None:
    sentence = f"Hub: {name} must be {expected}, not {value!r}."
    with pytest.raises(DefinitionError, match=f"^{re.escape(sentence)}$"):
        Hub("house", version="1", **{name: value})


def test_icons_of_a_hub_are_those_that_clients_can_read() -> None:
    with pytest.raises(DefinitionError, match=r"^Hub: an icon is a dict .*, not 'x.png'\.$"):
        Hub("house", version="1", icons=["x.png"])
    hub = Hub("house", version="1", icons=[{"src": "x.png", "mime_type": "image/png"}])
    assert hub.info.icons == [{"src": "x.png", "mimeType": "image/png"}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "49134"),
        ("port", 70_000),
        ("token", 5),
        ("state_timeout", "1"),
        ("limits", {"functions": -1}),
        ("limits", {"function": 1}),
    ],
)
def test_a_wrong_setting_for_workers_is_refused_where_the_hub_is_made(name: str, value: Any) -> None:
    with pytest.raises(DefinitionError, match=rf"^Hub: the setting '{name}' for workers cannot be "):
        Hub("house", version="1", workers={name: value})
