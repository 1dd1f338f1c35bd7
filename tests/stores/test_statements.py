"""SQL that is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import apsw
import pytest

from waypost.stores.database import (
    INTEGER,
    REAL,
    TEXT,
    Change,
    Query,
    Row,
    Statement,
    Table,
    count_up,
    delete,
    delete_where,
    insert,
    number_placeholders,
    page,
    select,
    update,
)

CARS = Table("cars", id=TEXT, version=INTEGER, colour=TEXT)
SEATS = Table("seats", keys=2, car=TEXT, number=INTEGER, price=REAL)


@pytest.fixture
def cars() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE cars (id TEXT PRIMARY KEY, version INTEGER, colour TEXT)")
    connection.executemany("INSERT INTO cars VALUES (?, ?, ?)", [("a", 1, "red"), ("b", 1, "blue"), ("c", 3, "red")])
    yield connection
    connection.close()


def everything(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM cars ORDER BY id").fetchall()


Run = Callable[[apsw.Connection, Statement, Sequence[Row]], int]


def one_by_one(connection: apsw.Connection, statement: Statement, rows: Sequence[Row]) -> int:
    before = connection.total_changes()
    connection.executemany(statement.single, rows)
    return connection.total_changes() - before


def all_at_once(connection: apsw.Connection, statement: Statement, rows: Sequence[Row]) -> int:
    connection.execute(statement.wide(len(rows)), list(chain.from_iterable(rows)))
    return connection.changes()


BOTH_WAYS = pytest.mark.parametrize("run", [one_by_one, all_at_once])
"""A statement does the same for many rows whether they are given one by one or all at once."""


def test_a_table_has_its_key_first() -> None:
    assert CARS.key == ("id",)
    assert SEATS.key == ("car", "number")
    assert SEATS.types(["price", "car"]) == (REAL, TEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("SELECT 1", "SELECT 1"), ("a = ?", "a = $1"), ("a = ? AND b > ? LIMIT ?", "a = $1 AND b > $2 LIMIT $3")],
)
def test_parameters_are_numbered_for_postgresql(text: str, expected: str) -> None:
    assert number_placeholders(text) == Query(text).postgres == expected
    assert Query(text).sqlite == text


@BOTH_WAYS
def test_rows_are_added_and_a_taken_key_fails_is_skipped_or_replaced(cars: apsw.Connection, run: Run) -> None:
    given = [("a", 9, "green"), ("d", 1, "white")]

    with pytest.raises(apsw.ConstraintError):
        run(cars, insert(CARS), given)
    assert run(cars, insert(CARS, "skip"), given) == 1
    assert everything(cars) == [("a", 1, "red"), ("b", 1, "blue"), ("c", 3, "red"), ("d", 1, "white")]
    assert run(cars, insert(CARS, "replace"), [*given[:1], ("e", 1, "pink")]) == 2
    assert everything(cars)[0] == ("a", 9, "green")


@BOTH_WAYS
def test_rows_are_changed_where_the_version_fits_and_the_version_moves_on(cars: apsw.Connection, run: Run) -> None:
    given = [("a", 1, "grey"), ("b", 2, "grey"), ("x", 1, "grey")]

    assert run(cars, update(CARS, ["version"], ["colour"]), given) == 1
    assert everything(cars) == [("a", 2, "grey"), ("b", 1, "blue"), ("c", 3, "red")]


@BOTH_WAYS
def test_a_change_may_leave_the_version_and_set_constants(cars: apsw.Connection, run: Run) -> None:
    statement = update(CARS, ["colour"], [], moves=False, constants={"colour": "'none'"})

    assert run(cars, statement, [("a", "red"), ("b", "red")]) == 1
    assert everything(cars)[:2] == [("a", 1, "none"), ("b", 1, "blue")]


@BOTH_WAYS
def test_a_number_counts_how_often_its_key_was_given(run: Run) -> None:
    visits = apsw.Connection(":memory:")
    visits.execute("CREATE TABLE visits (place TEXT PRIMARY KEY, number INTEGER)")
    counting = count_up(Table("visits", place=TEXT, number=INTEGER))

    for given, expected in ((["a", "b", "a"], [("a", 2), ("b", 1)]), (["b"], [("a", 2), ("b", 2)])):
        assert run(visits, counting, [(place,) for place in given]) == len(given)
        assert visits.execute("SELECT * FROM visits ORDER BY place").fetchall() == expected
    visits.close()


@BOTH_WAYS
def test_rows_are_removed_by_key_or_by_version(cars: apsw.Connection, run: Run) -> None:
    assert run(cars, delete(CARS, ["version"]), [("a", 1), ("b", 9)]) == 1
    assert run(cars, delete(CARS), [("b",), ("x",)]) == 1
    assert everything(cars) == [("c", 3, "red")]


def test_a_condition_with_a_limit_removes_so_many_rows(cars: apsw.Connection) -> None:
    cars.execute(delete_where(CARS, "version < ?", [INTEGER], limit=2).single, [9])
    assert cars.changes() == 2
    assert len(everything(cars)) == 1


def test_a_condition_without_a_limit_removes_everything_it_holds_for(cars: apsw.Connection) -> None:
    statement = delete_where(CARS, "colour = ?", [TEXT])

    assert statement.alone
    cars.execute(statement.single, ["red"])
    assert cars.changes() == 2


def test_whole_rows_are_selected_in_an_order_and_with_a_limit(cars: apsw.Connection) -> None:
    query = select(CARS, "version < ?", order=["id DESC"], limit=True)

    assert cars.execute(query.sqlite, [9, 2]).fetchall() == [("c", 3, "red"), ("b", 1, "blue")]


def test_a_page_begins_after_a_key_and_pinned_columns_come_first(cars: apsw.Connection) -> None:
    assert cars.execute(page(CARS).sqlite, ["a", 1]).fetchall() == [("b", 1, "blue")]
    assert cars.execute(page(CARS, "colour").sqlite, ["red", "a", 9]).fetchall() == [("c", 3, "red")]
    assert page(SEATS, "car").sqlite.endswith("WHERE car = ? AND (number) > (?) ORDER BY number LIMIT ?")


def test_a_change_of_several_statements_is_one_text_for_postgresql() -> None:
    change = Change(update(CARS, ["version"], ["colour"]), insert(SEATS))

    assert change.postgres.startswith("WITH fence AS (UPDATE cars SET version = cars.version + 1")
    assert "RETURNING cars.id), then1 AS (INSERT INTO seats" in change.postgres
    assert change.postgres.endswith("SELECT * FROM fence")
    assert [f"${number}::" in change.postgres for number in range(1, 9)] == [True] * 7 + [False]


def test_a_change_distinguishes_rows_by_their_key() -> None:
    one, two, alone = Change(insert(CARS)), Change(insert(SEATS)), Change(delete_where(CARS, "version > ?", [INTEGER]))

    assert one.key_of(("a", 1, "red")) == "a"
    assert two.key_of(("a", 1, 9.5)) == ("seats", "a", 1)
    assert alone.key_of((5,)) == ("cars",)
