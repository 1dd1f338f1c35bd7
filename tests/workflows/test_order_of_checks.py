"""Checks have a fixed order: timeout, version, transition, actor, schema, guards; then the executor runs."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import ANN, WORK, Json, bench, flow, later

SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
TRANSITION: Json = {
    "target": "done",
    "actor": "human",
    "inputSchema": SCHEMA,
    "guards": [{"kind": "expr", "expr": "$.context.ready == true"}],
    "executor": WORK,
}
ORDER = ("STALE_WORKFLOW_VERSION", "INVALID_TRANSITION", "ACTOR_MISMATCH", "INPUT_SCHEMA_VIOLATION", "GUARD_REJECTED")


def definition(*, ready: bool) -> Json:
    states = {"a": {"transitions": {"go": TRANSITION}}, "done": {"terminal": True}}
    return flow(states, initialContext={"ready": ready})


@pytest.mark.parametrize("wrong", [subset for n in range(6) for subset in itertools.combinations(ORDER, n)])
@asynchronous
async def test_the_first_failing_check_is_reported_and_nothing_runs(wrong: tuple[str, ...]) -> None:
    async with bench(definition(ready="GUARD_REJECTED" not in wrong)) as b:
        view = await b.start()
        answer = await b.submit(
            view,
            "nowhere" if "INVALID_TRANSITION" in wrong else "go",
            {} if "INPUT_SCHEMA_VIOLATION" in wrong else {"value": 1},
            **({} if "ACTOR_MISMATCH" in wrong else {"by": ANN}),
            version=view["version"] + ("STALE_WORKFLOW_VERSION" in wrong),
        )
        assert answer.code == (wrong[0] if wrong else None)
        assert len(b.work.calls) == (0 if wrong else 1)
        if wrong:
            assert "self" in answer.rels
            assert (await b.get(view)).at == view.at
            assert len(await b.history(view)) == 1


@asynchronous
async def test_a_timeout_comes_before_the_version() -> None:
    late = definition(ready=True) | {"timeoutMs": 1, "onTimeout": {"target": "done"}}
    async with bench(late) as b:
        view = await b.start(by=ANN)
        await later(time.time() + 0.002)
        answer = await b.submit(view, "go", {"value": 1}, by=ANN)
        assert answer.code == "STALE_WORKFLOW_VERSION"
        assert (answer["state"], answer["version"]) == ("done", 2)
        assert b.work.calls == []


@asynchronous
async def test_arguments_cannot_set_the_principal() -> None:
    async with bench(definition(ready=True)) as b:
        view = await b.start()
        claims = {"value": 1, "actor": "human", "role": "human", "roles": ["human"], "principal": {"id": "ann"}}
        assert (await b.submit(view, "go", claims)).code == "ACTOR_MISMATCH"
        assert (await b.submit(view, "go", claims, by=ANN))["terminal"]


@pytest.mark.parametrize("transition", ["go", "other", "end", "nowhere", "$resume"])
@asynchronous
async def test_a_move_by_another_hub_is_reported_as_stale_before_other_errors(tmp_path: Path, transition: str) -> None:
    place = f"sqlite:///{tmp_path}/shared.db"
    states = {
        "a": {"transitions": {"go": {"target": "b"}, "other": {"target": "b", "inputSchema": SCHEMA}}},
        "b": {"transitions": {"end": {"target": "done"}}},
        "done": {"terminal": True},
    }
    async with bench(flow(states), store=place) as one, bench(flow(states), store=place) as other:
        view = await one.start()
        await other.submit(view, "go")
        refused = await one.submit(view, transition)
        assert refused.code == "STALE_WORKFLOW_VERSION"
        assert (refused["state"], refused["version"]) == ("b", 2)
