"""The tables of the page are those of the last run, and portable names go to the clients that need them."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.clients.matrix import CLIENTS, HELD, HERE, PAGE, RESULTS, draw_tables, place_tables
from waypost.capabilities.capability import needs_portable_names

ROWS: Final[dict[str, Any]] = json.loads(RESULTS.read_text())


def test_the_tables_of_the_page_are_those_of_the_last_run() -> None:
    page = PAGE.read_text()
    assert place_tables(page, draw_tables(ROWS)) == page


def test_every_client_was_tried_in_the_version_that_is_installed() -> None:
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert {row["title"]: row["version"] for row in ROWS.values()} == {
        one.title: wanted[one.package] for one in CLIENTS
    }


def test_the_clients_that_confuse_canonical_names_and_no_others_get_portable_ones() -> None:
    confused = {row["clientInfo"] for row in ROWS.values() if set(row["names"]["canonical"].values()) != {HELD}}
    portable = {row["clientInfo"] for row in ROWS.values() if needs_portable_names(row["clientInfo"])}
    assert confused == portable


def test_every_client_takes_the_names_that_it_gets_by_default() -> None:
    for row in ROWS.values():
        assert set(row["names"]["auto"].values()) == {HELD}, row["title"]


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (HERE / "package-lock.json").read_text()
