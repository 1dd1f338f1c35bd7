"""What commands print: tables for people."""

from __future__ import annotations

from waypost.cli.command import Columns, Row, format_table

COLUMNS: Columns = {"A": "a", "B": lambda row: row["b"]}


def test_a_table_escapes_control_characters() -> None:
    rows = [{"a": "\x1b[31mred\n", "b": "ü"}]

    assert format_table(COLUMNS, rows).splitlines() == ["A              B", r"\x1b[31mred\n  ü"]


def test_a_table_without_rows_is_none() -> None:
    assert format_table(COLUMNS, []) == "none"


def test_cells_may_be_numbers_lists_or_nothing() -> None:
    rows: list[Row] = [{"a": 1, "b": ["x", "y"]}, {"a": None, "b": "z"}]

    assert format_table(COLUMNS, rows).splitlines() == ["A  B", "1  x,y", "   z"]
