"""A store behaves like the model for any operations, in any order and concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.contract.conftest import Place
from tests.contract.model import Model, Real
from tests.postgres import run_sql
from waypost.stores import schema, sqlite
from waypost.stores.store import Store

NAMES = st.sampled_from(["a", "B", "é", "😀"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
TOKENS = st.sampled_from(["t1", "t2"])
ANY_TOKEN = st.sampled_from(["", "", "t1", "t2"])
KEYS = ["k1", "k2", "k3", "k4"]
REQUEST = st.one_of(st.none(), st.none(), st.sampled_from(KEYS))
TIMES = st.sampled_from([1.0, 2.0, 3.0])
OFF_BY = st.sampled_from([0, 0, 0, 0, -1, 1])
"""How far a version that is given is from the one that is right."""


class Action(NamedTuple):
    """An operation; its version, if it takes one, is the second argument."""

    name: str
    versioned: str | None
    off_by: int
    given: tuple[Any, ...]


def action(name: str, *given: st.SearchStrategy[Any], versioned: str | None = None) -> st.SearchStrategy[Action]:
    return st.builds(Action, st.just(name), st.just(versioned), OFF_BY, st.tuples(NAMES, *given))


ACTIONS = st.one_of(
    action("start", TEXTS, REQUEST),
    action("commit", TEXTS, ANY_TOKEN, REQUEST, versioned="instances"),
    action("commit", TEXTS, ANY_TOKEN, REQUEST, versioned="instances"),
    action("settle", TEXTS, ANY_TOKEN, REQUEST, versioned="instances"),
    action("reserve", TOKENS, ANY_TOKEN, versioned="instances"),
    action("renew", TOKENS),
    action("release", TOKENS),
    st.builds(Action, st.just("answer"), st.none(), st.just(0), st.tuples(st.sampled_from(KEYS), TEXTS)),
    st.builds(Action, st.just("replace_answer"), st.none(), st.just(0), st.tuples(st.sampled_from(KEYS), TEXTS)),
    action("put", TEXTS, versioned="documents"),
    action("remove", versioned="documents"),
    action("keep", TEXTS, versioned="values"),
    action("drop", versioned="values"),
    action("add", TIMES),
    action("prolong", TIMES, versioned="jobs"),
    action("put_back", TIMES, versioned="jobs"),
    action("give_up", TIMES, versioned="jobs"),
    action("finish", versioned="jobs"),
)


class StoreMachine(RuleBasedStateMachine):
    """A store and the model side by side."""

    fresh: ClassVar[Callable[[], Store]]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.real = Real(type(self).fresh())
        self.runner = asyncio.Runner()

    @rule(asked=ACTIONS)
    def one(self, asked: Action) -> None:
        self._compare([asked])

    @rule(asked=st.lists(ACTIONS, min_size=2, max_size=8))
    def many_at_once(self, asked: list[Action]) -> None:
        self._compare(asked)

    @rule(now=TIMES, until=TIMES, limit=st.integers(1, 3))
    def lease(self, now: float, until: float, limit: int) -> None:
        assert self.runner.run(self.real.lease(now, until, limit)) == self.model.lease(now, until, limit)

    @rule()
    def look_at_everything(self) -> None:
        found = self.runner.run(self.real.content(KEYS))
        expected = self.model.content()
        for kind in ("instances", "documents", "values", "jobs"):
            expected[kind].sort(key=lambda row: row[0].encode())
        for kind in ("reserved", "due"):
            expected[kind].sort(key=str.encode)
        assert found == expected

    def teardown(self) -> None:
        try:
            self.look_at_everything()
            assert self.runner.run(self.real.store.check()) == []
        finally:
            self.runner.run(self.real.store.close())
            self.runner.close()

    def _compare(self, asked: list[Action]) -> None:
        """Run the operations on the model in sequence, then on the store concurrently."""
        given, expected = [], []
        for one in asked:
            arguments = list(one.given)
            if one.versioned is not None:
                arguments.insert(1, self.model.version(one.versioned, one.given[0]) + one.off_by)
            given.append(arguments)
            expected.append(_outcome(getattr(self.model, one.name), arguments))

        async def together() -> list[Any]:
            calls = (getattr(self.real, one.name)(*arguments) for one, arguments in zip(asked, given, strict=True))
            return await asyncio.gather(*calls, return_exceptions=True)

        found = [type(one) if isinstance(one, Exception) else one for one in self.runner.run(together())]
        assert found == expected, list(zip(asked, given, expected, found, strict=True))


def _outcome(ask: Callable[..., Any], given: list[Any]) -> Any:
    try:
        return ask(*given)
    except Exception as error:
        return type(error)


def run_machine(fresh: Callable[[], Store], examples: int, steps: int) -> None:
    machine = type("Machine", (StoreMachine,), {"fresh": staticmethod(fresh)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_store_in_memory_behaves_like_the_model() -> None:
    run_machine(Place("sqlite-memory", None).store, examples=80, steps=30)


def test_a_store_that_writes_all_rows_at_once_behaves_like_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_STATEMENT_S", -1.0)  # every statement takes all its rows at once

    run_machine(Place("sqlite-memory", None).store, examples=40, steps=30)


def test_a_store_in_a_file_behaves_like_the_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fresh() -> Store:
        return Place("sqlite-file", tmp_path_factory.mktemp("model") / "store.db").store()

    run_machine(fresh, examples=40, steps=30)


def test_a_store_on_a_server_behaves_like_the_model(postgres_url: str) -> None:
    place = Place("postgres", postgres_url)
    names = ", ".join(table.name for table in schema.TABLES)
    asyncio.run(_make_tables(place))

    def fresh() -> Store:
        run_sql(postgres_url, f"TRUNCATE {names}")
        return place.store()

    run_machine(fresh, examples=40, steps=25)


async def _make_tables(place: Place) -> None:
    store = place.store()
    await store.open()
    await store.close()
