"""The library: current definitions, and those that instances are pinned to."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import Json, bench, flow, model
from waypost import Hub
from waypost.errors import DefinitionError
from waypost.workflows.definitions import Definition, Library

DONE: Json = {"terminal": True}
ONE = flow({"a": {"transitions": {"go": {"target": "done"}}}, "done": DONE})


@asynchronous
async def test_an_unchanged_definition_stays_the_same_object() -> None:
    async with bench(ONE) as b:
        library = b.engine.library
        before = library.get("flow")
        library.replace(library.compile_all({"flow": model(ONE), "more": model(ONE)}))
        assert library.get("flow") is before
        assert [definition.id for definition in library] == ["flow", "more"]
        library.replace({})
        assert library.get("flow") is None


@asynchronous
async def test_different_definitions_have_different_digests() -> None:
    async with bench(ONE) as b:
        library = b.engine.library
        same = [library.compile("flow", model(ONE)).digest for _ in range(2)]
        assert same[0] == same[1]
        others = {
            library.compile("other", model(ONE)).digest,
            library.compile("flow", model({**ONE, "title": "T"})).digest,
            same[0],
        }
        assert len(others) == 3


@asynchronous
async def test_a_pinned_definition_is_loaded_by_another_library(store: str) -> None:
    async with bench(ONE, store=store) as b:
        definition = b.engine.library.get("flow")
        assert definition is not None
        await b.engine.library.pin(definition)
        await b.engine.library.pin(definition)
        fresh = Library(b.hub.store, definition.context)
        found = await fresh.load_pinned(definition.digest)
        assert (found.id, found.model, found.digest) == ("flow", definition.model, definition.digest)
        assert await fresh.load_pinned(definition.digest) is found


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "human", "approvals": 2, "presents": {"n": "$.context.n"}},
        {"kind": "workflow", "definitionId": "other", "input": {"n": 1}},
        {"kind": "parallel", "forEach": [1], "do": {"kind": "noop"}, "join": {"atLeast": 1}},
        {"kind": "pipeline", "steps": [{"kind": "noop"}, {"kind": "cli", "command": "true"}]},
        {"kind": "cli", "command": "echo", "args": ["$.input.x", 1], "env": {"A": "b"}},
    ],
)
@asynchronous
async def test_every_executor_survives_the_store(given: Json) -> None:
    guards = [
        {
            "kind": "all_of",
            "guards": [{"kind": "role", "role": "r"}, {"kind": "not", "guard": {"kind": "any_of", "guards": []}}],
        },
        {"kind": "evidence", "requires": ["e", {"kind": "f", "count": 2}]},
    ]
    transition = {"target": "done", "executor": given, "guards": guards, "output": {"x": {"add": ["$.context.n", 1]}}}
    definition = flow(
        {"a": {"transitions": {"go": transition}}, "done": DONE}, timeoutMs=5, onTimeout={"target": "done"}
    )
    async with bench(ONE) as b:
        library = b.engine.library
        made = library.compile("flow", model(definition))
        await library.pin(made)
        fresh = Library(b.hub.store, made.context)
        found = await fresh.load_pinned(made.digest)
        assert found.model == made.model
        assert found.digest == made.digest
        found.compile()


@asynchronous
async def test_similar_names_are_found() -> None:
    async with bench(deploy=ONE, destroy=ONE) as b:
        assert b.engine.library.find_nearest("deplyo")[0] == "deploy"
        assert b.engine.library.find_nearest("zzzzzz") == []


@asynchronous
async def test_an_error_names_the_definition_and_the_transition() -> None:
    async with bench(ONE) as b:
        bad = flow({"a": {"transitions": {"go": {"target": "done", "executor": {"kind": "cli"}}}}, "done": DONE})
        with pytest.raises(DefinitionError, match=r"flow, a\.go"):
            b.engine.library.compile("flow", model(bad))


def test_the_name_proxy_default_is_refused() -> None:
    hub = Hub("h", version="1")
    with pytest.raises(DefinitionError, match=r"^proxy_default is the built-in workflow for single capabilities"):
        hub.workflows.add("proxy_default", model(ONE))
    hub.workflow("other", model(ONE))


@asynchronous
async def test_states_are_compiled_with_guidance_chains_and_link_filters() -> None:
    definition = flow(
        {
            "a": {"goal": "G", "transitions": {"go": {"target": "done"}}},
            "auto": {"transitions": {"on": {"target": "done", "actor": "deterministic"}}},
            "mixed": {
                "linkFilter": "all",
                "transitions": {"on": {"target": "done", "actor": "deterministic"}, "by": {"target": "done"}},
            },
            "done": DONE,
        },
        linkFilter="byGuards",
    )
    async with bench(definition) as b:
        found = b.engine.library.get("flow")
        assert isinstance(found, Definition)
        assert found.states["a"].guidance == {"goal": "G"}
        assert [plan.name for plan in found.states["auto"].chained] == ["on"]
        assert found.states["mixed"].chained == ()
        assert found.states["done"].chained == ()
        assert (found.states["a"].links_by_guards, found.states["mixed"].links_by_guards) == (True, False)
