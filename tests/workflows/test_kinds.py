"""Kinds of executors and guards: the tables are complete, and third-party kinds work everywhere."""

from __future__ import annotations

import pkgutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pytest
from msgspec import Meta, Struct

from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import Json, bench, flow, model
from waypost import kinds
from waypost.cli.main import main
from waypost.config import load, schema
from waypost.config.findings import KeyPath
from waypost.errors import DefinitionError
from waypost.kinds import ExecutorModel, GuardModel, convert
from waypost.policy import Rule
from waypost.workflows import executors, guards
from waypost.workflows.checks import check_workflows
from waypost.workflows.data_flow import Place, Report
from waypost.workflows.definitions import Definition
from waypost.workflows.executors import (
    EXECUTORS,
    Builder,
    Executor,
    ExecutorFields,
    ExecutorKind,
    Run,
    build,
    register_executor,
    unregister_executor,
)
from waypost.workflows.graph import mermaid
from waypost.workflows.guards import GUARDS, CompiledGuard, GuardKind, compile_guard, register_guard, unregister_guard
from waypost.workflows.guards.kind import Compiler, Fact, Lack, Opaque
from waypost.workflows.replay import parse_recording, replay
from waypost.workflows.scope import Scope
from waypost.workflows.simulation import ISOLATED


class Shout(ExecutorFields, frozen=True, kw_only=True, tag="shout"):
    """Gives a text in capitals."""

    text: Annotated[Any, Meta(description="The text, or a path to it.")]
    through: Annotated[str | None, Meta(description="The tool that would have to be there.")] = None


def build_shout(model: Shout, builder: Builder) -> Executor:
    text = builder.value(model.text)

    async def run(run: Run) -> Any:
        return {"said": text(run.scope).upper()}

    return Executor("shout", run, "shouted")


def check_shout(model: Shout, path: KeyPath, report: Report) -> None:
    if model.text == "":
        report.add((*path, "text"), "there is nothing to shout; write a text", "WF020")


def check_shout_place(model: Shout, place: Place, report: Report) -> None:
    if "parallel" in place.within:
        report.add(place.path, "only one at a time can shout; use a pipeline", "WF021")


SHOUT = ExecutorKind(
    model=Shout,
    build=build_shout,
    plan=None,
    check=check_shout,
    check_place=check_shout_place,
    names={"through": "capability"},
    templates=("text",),
    asks_person=False,
    mark=" (loud)",
)


class Holds(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="holds", tag_field="kind"):
    """Holds when the context has a slot."""

    slot: str


def compile_holds(guard: Holds, compiler: Compiler) -> CompiledGuard:
    data = msgspec.to_builtins(guard)
    lack = Lack(data, f"nothing wrote {guard.slot}")
    return CompiledGuard(data, lambda scope: guard.slot in scope.context, lambda scope: [lack])


HOLDS = GuardKind(
    model=Holds,
    compile=compile_holds,
    expressions=(),
    ways=lambda guard, holds: [(Fact(Opaque(f"holds {guard.slot}"), holds),)],
    needs_instance=lambda guard: True,
    text=lambda guard: f"has {guard.slot}",
    truth=lambda guard, known: None if guard.slot == "unrecorded" else known.evaluate(guard),
)

WORDS: Json = {"kind": "shout", "text": "$.arguments.word"}
ASKED: Json = {"kind": "not", "guard": {"kind": "not", "guard": {"kind": "holds", "slot": "said"}}}
FLOW: Json = flow(
    {
        "a": {
            "transitions": {
                "say": {"target": "a", "executor": WORDS, "output": {"said": "$.output.said"}},
                "end": {
                    "target": "b",
                    "guards": [{"kind": "holds", "slot": "said"}, ASKED],
                    "branches": [{"when": {"kind": "holds", "slot": "twice"}, "target": "b"}],
                },
            }
        },
        "b": {"terminal": True},
    }
)
YAML: Final = """
    workflows:
      flow:
        initialState: a
        states:
          a:
            transitions:
              say:
                target: b
                guards: [{kind: holds, slot: said}]
                executor: {kind: shout, text: TEXT}
          b: {terminal: true}
"""


@pytest.fixture
def toys() -> Iterator[None]:
    """Kinds that a third-party package has registered."""
    register_executor(SHOUT)
    register_guard(HOLDS)
    yield
    unregister_guard(HOLDS)
    unregister_executor(SHOUT)


def written(folder: Path, text: str) -> Path:
    """A configuration file."""
    file = folder / "waypost.yaml"
    file.write_text(textwrap.dedent(text))
    return file


@pytest.mark.usefixtures("toys")
@asynchronous
async def test_a_hub_runs_a_workflow_with_third_party_kinds() -> None:
    async with bench(FLOW) as b:
        view = await b.start()
        refused = await b.submit(view, "end")
        assert refused.code == "GUARD_REJECTED"
        assert refused["error"]["guards"][0] == {
            "guard": {"kind": "holds", "slot": "said"},
            "message": "Nothing wrote said.",
            "operands": {},
        }
        view = await b.submit(view, "say", {"word": "hello"})
        assert view["context"]["said"] == "HELLO"
        assert (await b.submit(view, "end"))["state"] == "b"
        first, second = (await b.history(view))[1:]
        assert first["executor"]["kind"] == "shout"
        assert second["guards"][0] == "has said"


@pytest.mark.usefixtures("toys")
@asynchronous
async def test_third_party_kinds_are_explained() -> None:
    async with bench(FLOW) as b:
        view = await b.explain(definitionId="flow", transition="say")
        assert view["executor"] == WORDS
        assert (await b.explain(definitionId="flow", transition="end"))["guards"] == [
            {"kind": "holds", "slot": "said"},
            ASKED,
        ]


@pytest.mark.usefixtures("toys")
@asynchronous
async def test_rules_apply_to_capabilities_that_a_third_party_kind_names() -> None:
    way = {"target": "b", "executor": {**WORDS, "through": "work"}}
    rule = {"name": "no", "type": "allow_list", "config": {"allow": ["workflow*"]}, "hide": True}
    options = {"policies": [msgspec.convert(rule, Rule)]}
    async with bench(flow({"a": {"transitions": {"say": way}}, "b": {"terminal": True}}), options=options) as b:
        view = await b.explain(definitionId="flow", transition="say")
        assert view["denied"]["code"] == "POLICY_DENIED"
        assert view["executor"]["kind"] == "shout"
        assert view["executor"]["through"] != "work"


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("slot", "verdict"), [("said", "allowed"), ("missing", "refused"), ("unrecorded", "not_known")]
)
def test_a_third_party_guard_is_evaluated_in_a_replay(slot: str, verdict: str) -> None:
    guard = {"kind": "any_of", "guards": [{"kind": "all_of", "guards": [{"kind": "holds", "slot": slot}]}]}
    definition = model(
        flow({"a": {"transitions": {"end": {"target": "b", "guards": [guard]}}}, "b": {"terminal": True}})
    )
    rows = [
        {"version": 1, "transition": "$start", "from": None, "to": "a", "by": "ann", "delta": {"said": "x"}},
        {"version": 2, "transition": "end", "from": "a", "to": "b", "by": "ann"},
    ]
    replayed = replay(Definition("flow", definition, ISOLATED), parse_recording({"history": rows}))
    assert [commit.verdict for commit in replayed.commits] == ["allowed", verdict]


@pytest.mark.usefixtures("toys")
def test_a_third_party_kind_is_drawn() -> None:
    drawn = mermaid(model(FLOW))
    assert "say (loud)" in drawn
    assert "end if has twice" in drawn


@pytest.mark.usefixtures("toys")
def test_a_third_party_kind_is_in_the_schema() -> None:
    definitions = schema()["$defs"]
    assert definitions["Shout"]["properties"]["text"]["description"] == "The text, or a path to it."
    assert {"$ref": "#/$defs/Holds"} in definitions["Not"]["properties"]["guard"]["anyOf"]


@pytest.mark.usefixtures("toys")
def test_the_check_command_checks_third_party_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(written(tmp_path, YAML.replace("TEXT", "$.nowhere.x")))])
    assert "WF030" in capsys.readouterr().out
    main(["check", str(written(tmp_path, YAML.replace("TEXT", "hello")))])
    assert "WF0" not in capsys.readouterr().out


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("executor", "key", "code"),
    [
        ("{kind: shout, text: ''}", "executor.text", "WF020"),
        ("{kind: shout, text: $.context.nothing}", "executor.text", "WF054"),
        ("{kind: shout, text: x, through: nobody}", "executor.through", "WF012"),
        ("{kind: parallel, branches: [{kind: shout, text: x}]}", "executor.branches[0]", "WF021"),
        ("{text: ''}", "executor.text", "WF020"),
    ],
)
def test_each_part_of_a_kind_is_checked(tmp_path: Path, executor: str, key: str, code: str) -> None:
    loaded = load(written(tmp_path, YAML.replace("{kind: shout, text: TEXT}", executor)), {})
    (found,) = [one for one in check_workflows(loaded, {"work"}) if one.code == code]
    assert found.key == f"workflows.flow.states.a.transitions.say.{key}"
    assert found.line == 11


@pytest.mark.usefixtures("toys")
def test_a_third_party_guard_is_checked_like_any_other(tmp_path: Path) -> None:
    both = "[{kind: holds, slot: said}, {kind: not, guard: {kind: holds, slot: said}}]"
    loaded = load(written(tmp_path, YAML.replace("[{kind: holds, slot: said}]", both).replace("TEXT", "x")), {})
    assert [one.code for one in check_workflows(loaded, None)] == ["WF055"]


def test_a_kind_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="not a registered kind of executor"):
        build(Shout(text="x"), None)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="not a registered kind of guard"):
        compile_guard(Holds(slot="x"))
    with pytest.raises(msgspec.ValidationError, match=r"Invalid value 'shout' - at `\$\[0\]\.kind`"):
        convert([{"kind": "shout", "text": "x"}], list[ExecutorModel])


@pytest.mark.parametrize("part", ["build", "plan", "check", "check_place", "names", "templates", "asks_person", "mark"])
def test_an_executor_kind_without_one_of_its_parts_cannot_be_made(part: str) -> None:
    parts: dict[str, Any] = {
        "model": Shout,
        "build": build_shout,
        "plan": None,
        "check": None,
        "check_place": None,
        "names": {},
        "templates": (),
        "asks_person": False,
        "mark": "",
    }
    assert ExecutorKind(**parts).name == "shout"
    del parts[part]
    with pytest.raises(TypeError, match=part):
        ExecutorKind(**parts)


@pytest.mark.parametrize("part", ["compile", "expressions", "ways", "needs_instance", "text", "truth"])
def test_a_guard_kind_without_one_of_its_parts_cannot_be_made(part: str) -> None:
    parts: dict[str, Any] = {
        "model": Holds,
        "compile": compile_holds,
        "expressions": (),
        "ways": lambda guard, holds: [],
        "needs_instance": lambda guard: False,
        "text": None,
        "truth": None,
    }
    assert GuardKind(**parts).name == "holds"
    del parts[part]
    with pytest.raises(TypeError, match=part):
        GuardKind(**parts)


def test_a_kind_that_refers_to_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Shout has no fields tone"):
        ExecutorKind(
            model=Shout,
            build=build_shout,
            plan=None,
            check=None,
            check_place=None,
            names={"tone": "capability"},
            templates=(),
            asks_person=False,
            mark="",
        )
    with pytest.raises(TypeError, match="Holds has no fields expr"):
        GuardKind(
            model=Holds,
            compile=compile_holds,
            expressions=("expr",),
            ways=lambda guard, holds: [],
            needs_instance=lambda guard: False,
            text=None,
            truth=lambda guard, known: None,
        )


@pytest.mark.usefixtures("toys")
def test_a_kind_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match="There is a kind 'shout' already"):
        register_executor(SHOUT)
    with pytest.raises(ValueError, match="There is a kind 'holds' already"):
        register_guard(HOLDS)


def test_a_model_of_another_base_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="not marked as ExecutorModel"):
        kinds.EXECUTORS.add(HOLDS)


def test_every_module_of_a_kind_is_in_the_table() -> None:
    modules = {one.name for one in pkgutil.iter_modules(executors.__path__)} - {"kind", "reliability"}
    assert modules == {kind.name for kind in EXECUTORS}
    modules = {one.name.rstrip("_") for one in pkgutil.iter_modules(guards.__path__)} - {"kind"}
    assert modules | {"jsonpath"} == {kind.name for kind in GUARDS}


def test_the_tables_match_the_kinds_of_the_configuration() -> None:
    assert tuple(kinds.EXECUTORS.models) == tuple(kind.name for kind in EXECUTORS)
    assert tuple(kinds.GUARDS.models) == tuple(kind.name for kind in GUARDS)


def test_data_that_matches_no_kind_is_refused_with_its_path() -> None:
    nested = {"kind": "pipeline", "steps": [{"kind": "parallel", "branches": [{"kind": "cli", "command": 1}]}]}
    place = r"Expected `str \| null`, got `int` - at `\$\.do\.steps\[0\]\.branches\[0\]\.command`"
    with pytest.raises(msgspec.ValidationError, match=place):
        convert({"kind": "parallel", "do": nested}, ExecutorModel)
    with pytest.raises(msgspec.ValidationError, match="missing required field `kind`"):
        convert({"command": "x"}, ExecutorModel)
    with pytest.raises(msgspec.ValidationError, match="Expected `object`, got `int`"):
        convert(5, GuardModel)


def test_a_model_among_the_data_is_kept() -> None:
    made = convert({"kind": "noop"}, ExecutorModel)
    assert convert([made], list[ExecutorModel]) == [made]
    assert compile_guard(convert({"kind": "expr", "expr": "true"}, GuardModel)).holds(Scope({}, {}, {}))
