"""The pages about workflows are complete, and the answers they show are real."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
import pytest
import yaml
from msgspec import NODEFAULT, Struct

from tests.docs import exercises_gateway, exercises_workflows
from tests.docs.exercises import EXERCISES
from tests.docs.pages import DOCS, EXAMPLES, ROOT, Block, blocks
from tests.workflows.executors.test_building import KINDS
from waypost import Hub
from waypost.cli.target import load_hub
from waypost.config import Config, models
from waypost.kinds import BY_MARKER, ExecutorModel
from waypost.kinds import EXECUTORS as EXECUTOR_MODELS
from waypost.kinds import GUARDS as GUARD_MODELS
from waypost.testing import connect
from waypost.workflows import Child, JoinSome, Parallel, State, Transition, Workflow, instance
from waypost.workflows.definitions import WAITING
from waypost.workflows.expressions import compile_expression
from waypost.workflows.instance import read_body
from waypost.workflows.scope import GUARD_ROOTS, NESTED_ROOTS, OUTPUT_ROOTS, Scope, compile_mapping
from waypost.workflows.tools import workflow_tools

SOURCE: Final = ROOT / "src" / "waypost" / "workflows"
GUIDE: Final = "workflows.md"
REFERENCE, EXECUTORS, ANSWERS = "workflow-reference.md", "workflow-executors.md", "workflow-answers.md"
GATEWAY: Final = "gateway.md"
MODULES: Final = (exercises_gateway, exercises_workflows)
"""Their exercises are registered once they are imported."""
TABLES: Final[dict[type[Struct], tuple[str, str]]] = {
    models.Workflow: (REFERENCE, "A workflow"),
    models.State: (REFERENCE, "A state"),
    models.OnEnter: (REFERENCE, "On entry"),
    models.OnTimeout: (REFERENCE, "At a timeout"),
    models.Transition: (REFERENCE, "A transition"),
    models.Branch: (REFERENCE, "A branch"),
    models.Evidence: (REFERENCE, "Evidence"),
    models.EvidenceNeed: (REFERENCE, "Required evidence"),
    models.Capability: (REFERENCE, "An action"),
    models.Step: (REFERENCE, "A step"),
    models.StepRoute: (REFERENCE, "A route"),
    models.Reliability: (EXECUTORS, "Reliability"),
    models.Retry: (EXECUTORS, "Retry"),
    models.Fallback: (EXECUTORS, "Fallback"),
    JoinSome: (EXECUTORS, "Join"),
    models.McpConnection: (EXECUTORS, "The connection `mcp`"),
    models.CliConnection: (EXECUTORS, "The connection `cli`"),
    models.RestConnection: (EXECUTORS, "The connection `rest`"),
    **{one: (EXECUTORS, f"The executor `{one.__struct_config__.tag}`") for one in EXECUTOR_MODELS.models.values()},
}
"""Where the keys of each model are."""
GUARDS: Final[tuple[type[Struct], ...]] = tuple(GUARD_MODELS.models.values())
EVERY_EXECUTOR_HAS: Final = {"idempotent", "idempotencyKey"}


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of each row of the tables under a heading, by the code that begins it."""
    lines = [line for line in section(page, heading).splitlines() if re.match(r"\| \[?`", line)]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {re.findall(r"`([^`]+)`", row[0])[0]: row for row in cells}


def structs(annotation: Any) -> Iterator[type[Struct]]:
    """The models in an annotation, at any depth of it."""
    if annotation in BY_MARKER:
        yield from BY_MARKER[annotation].models.values()
    elif isinstance(annotation, type) and issubclass(annotation, Struct):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from structs(get_args(annotation)[0])
    elif get_origin(annotation) in (list, dict, typing.Union, UnionType):
        for part in get_args(annotation):
            yield from structs(part)


def reachable() -> set[type[Struct]]:
    """Every model of the sections about workflows, at any depth."""
    found = set[type[Struct]]()
    sections = ("connections", "capabilities", "workflows")
    waiting = [
        model for field in msgspec.structs.fields(Config) if field.name in sections for model in structs(field.type)
    ]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.add(model)
            waiting += [inner for field in msgspec.structs.fields(model) for inner in structs(field.type)]
    return found


def test_every_model_has_a_table() -> None:
    assert reachable() == {*TABLES, *GUARDS}


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_a_table_has_every_key_of_its_model_with_its_default_and_no_other(model: type[Struct]) -> None:
    rows = table(*TABLES[model])
    fields = {field.encode_name: field for field in msgspec.structs.fields(model)}
    if issubclass(model, ExecutorModel):
        fields = {name: field for name, field in fields.items() if name not in EVERY_EXECUTOR_HAS}
    assert sorted(rows) == sorted(fields)
    for name, field in fields.items():
        shown = rows[name][2]
        if field.required:
            assert shown == "required", name
        elif field.default not in (NODEFAULT, None):
            default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default) or '""'
            assert shown == f"`{default}`", name
        else:
            assert shown == "", name


@pytest.mark.parametrize("model", GUARDS, ids=lambda model: model.__name__)
def test_every_guard_is_in_its_table_with_its_keys(model: type[Struct]) -> None:
    row = table(REFERENCE, "Guards")[str(model.__struct_config__.tag)]
    assert row[1] == ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(model))


def test_every_executor_is_in_its_table_with_its_evidence_and_whether_it_is_idempotent() -> None:
    rows = table(EXECUTORS, "Kinds")
    assert list(rows) == [one.__struct_config__.tag for one in EXECUTOR_MODELS.models.values()]
    evidence = {str(written["kind"]): found for written, found in KINDS} | {"human": "human_approval"}
    for one in EXECUTOR_MODELS.models.values():
        fields = {field.encode_name: field for field in msgspec.structs.fields(one)}
        assert set(fields) >= EVERY_EXECUTOR_HAS
        kind = str(one.__struct_config__.tag)
        left = evidence[kind]
        assert rows[kind][2] == (f"`{left}`" if left else ""), kind
        assert rows[kind][3] == f"`{str(fields['idempotent'].default).lower()}`", kind


def test_every_class_of_a_failure_is_in_the_table() -> None:
    assert sorted(table(EXECUTORS, "Failure classes")) == sorted(get_args(models.ErrorClass))


def test_every_error_code_is_in_the_table_and_no_other() -> None:
    raised = {code for path in SOURCE.glob("*.py") for code in codes(ast.parse(path.read_text()))}
    assert set(table(ANSWERS, "Errors")) == raised


def codes(tree: ast.AST) -> Iterator[str]:
    """The error codes that a module can answer with."""
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("WorkflowRefused", "refusal")):
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "code")]
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            given = [value for key, value in zip(keys, node.values, strict=True) if key == "code"]
        for part in given:
            for inner in ast.walk(part) if not isinstance(part, ast.JoinedStr) else ():
                if isinstance(inner, ast.Constant) and re.fullmatch(r"[A-Z][A-Z_]+", str(inner.value)):
                    yield str(inner.value)


def test_every_status_is_in_the_table_and_no_other() -> None:
    waiting = {WAITING, "chain_failed", "going_on", *instance.PENDING_STATUSES.values()}
    assert set(table(ANSWERS, "Status")) == waiting | instance.ENDED
    assert '"chain_failed"' in (SOURCE / "transitions.py").read_text()


def test_every_relation_of_a_link_is_in_the_table_and_no_other() -> None:
    text = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    assert set(table(ANSWERS, "Links")) == set(re.findall(r'"rel": "(\w+)"', text))


def test_every_tool_is_in_the_table_with_its_arguments() -> None:
    rows = table(ANSWERS, "Tools")
    for tool in workflow_tools(None):  # type: ignore[arg-type]  # only their definitions are read
        shown = set(re.findall(r"`(\w+)`", rows.pop(tool.id)[1]))
        assert shown == set(msgspec.to_builtins(tool.definition)["inputSchema"]["properties"])
    assert list(rows) == ["workflow:NAME"]


def test_every_actor_is_in_the_table() -> None:
    actor = next(field for field in msgspec.structs.fields(models.Transition) if field.name == "actor")
    assert list(table(ANSWERS, "Actors and roles")) == list(get_args(get_args(actor.type)[0]))


def test_everything_a_path_can_begin_with_is_in_the_table() -> None:
    rows = [name for name in table(REFERENCE, "Expressions") if re.fullmatch(r"\$\.\w+", name)]
    assert {row.removeprefix("$.") for row in rows} == GUARD_ROOTS | OUTPUT_ROOTS | NESTED_ROOTS


def test_the_expressions_of_the_page_have_the_shown_value() -> None:
    context = json.loads(re.findall(r"`(\{[^`]*\})`:$", section(REFERENCE, "Expressions"), re.MULTILINE)[0])
    rows = [row for name, row in table(REFERENCE, "Expressions").items() if row[1] in ("yes", "no")]
    assert len(rows) >= 18
    for row in rows:
        text = row[0].strip("`").replace("\\|", "|")
        assert compile_expression(text).holds(Scope(context, {}, {})) == (row[1] == "yes"), text
    used = "".join(row[0] for row in rows)
    assert all(
        op in used for op in ("==", "!=", "<", ">", "starts_with", "contains", "in", "matches", "&&", "!", "\\|")
    )


def test_the_output_mappings_of_the_page_write_the_shown_value() -> None:
    text = section(REFERENCE, "Output mappings")
    context, output = (json.loads(found) for found in re.findall(r"`(\{\"[^`]*\})`(?= and the output|:)", text))
    rows = table(REFERENCE, "Output mappings").values()
    assert len(rows) >= 14
    for row in rows:
        value, written = yaml.safe_load(row[0].strip("`")), json.loads(row[1].strip("`"))
        found = compile_mapping({"x": value}).apply(Scope(context, {}, {}, output=output))
        assert found == {"x": written}, row[0]


def shown() -> list[Block]:
    """The answers on the pages."""
    pages = (GUIDE, REFERENCE, EXECUTORS, ANSWERS, GATEWAY)
    return [block for block in blocks("json") if block.page.name in pages or '"workflowId"' in block.text]


def fits(shown: Any, real: Any) -> bool:
    """Whether a value is what a page shows; `...` stands for anything, in a text for any part of it."""
    if isinstance(shown, str) and "..." in shown:
        pattern = ".*".join(map(re.escape, shown.split("...")))
        return shown == "..." or (isinstance(real, str) and re.fullmatch(pattern, real) is not None)
    if isinstance(shown, dict):
        return (
            isinstance(real, dict) and list(shown) == list(real) and all(fits(shown[key], real[key]) for key in shown)
        )
    if isinstance(shown, list):
        return isinstance(real, list) and len(shown) == len(real) and all(map(fits, shown, real))
    return bool(shown == real) and type(shown) is type(real)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """All answers of the exercises."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for file in sorted(name for name in EXERCISES if name.startswith(("workflows/", "gateway"))):
            patch.setenv("WAYPOST_DATA", str(tmp_path_factory.mktemp("data")))
            found += asyncio.run(played(file))
    return [*found, *(answer["error"] for answer in found if "error" in answer)]


async def played(file: str) -> list[Any]:
    path = EXAMPLES / file
    hub = load_hub(str(path) if path.suffix == ".yaml" else f"{path}:hub")
    kept: list[Any] = []
    exercises_workflows.ANSWERS.set(kept)
    try:
        async with connect(hub) as client:
            await EXERCISES[file](client, hub)
    finally:
        await hub.stop()
    return kept


@pytest.mark.parametrize("block", shown(), ids=lambda block: block.place)
def test_an_answer_on_a_page_is_a_real_one(block: Block, answered: list[Any]) -> None:
    assert any(fits(json.loads(block.text), answer) for answer in answered), block.text


def test_an_answer_that_differs_is_noticed() -> None:
    real = {"id": "wf_1", "version": 1, "links": [{"rel": "self"}]}
    assert fits({"id": "wf_...", "version": 1, "links": "..."}, real)
    assert not fits({"id": "ap_...", "version": 1, "links": "..."}, real)
    assert not fits({"id": "wf_...", "version": True, "links": "..."}, real)
    assert not fits({"id": "wf_...", "version": 1}, real)
    assert not fits({"id": "wf_...", "version": 1, "links": []}, real)


def test_every_key_of_an_answer_is_in_the_table_and_no_other(answered: list[Any]) -> None:
    given = {key for answer in answered if "workflowId" in answer for key in answer} - {"allowed"}
    documented = table(ANSWERS, "An answer")
    assert given <= set(documented)
    assert set(documented) - given <= {"lastError"}
    asked = next(answer["approval"] for answer in answered if "approval" in answer and "digest" in answer["approval"])
    assert list(table(ANSWERS, "Approvals")) == list(asked)


def test_a_changed_file_applies_to_instances_that_start_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / "data"))
    file = tmp_path / "waypost.yaml"
    text = (EXAMPLES / "workflows" / "states.yaml").read_text()
    file.write_text(text)
    hub = load_hub(str(file))

    async def play() -> tuple[str, str]:
        try:
            async with connect(hub) as client:
                before = await exercises_workflows.start(client, service="payments")
                file.write_text(text.replace("run_lint: {title: Run linter, target: test}", "skip: {target: deployed}"))
                assert await hub.reload()
                old = await exercises_workflows.follow(client, before, "run_lint")
                new = await exercises_workflows.follow(
                    client, await exercises_workflows.start(client, service="payments"), "skip"
                )
                return old["state"], new["state"]
        finally:
            await hub.stop()

    assert asyncio.run(play()) == ("test", "deployed")


def test_workflows_wait_for_each_other_no_deeper_than_the_page_says() -> None:
    runs_itself = Parallel(branches=[Child(definition_id="endless", timeout_ms=800)])
    onward = Transition(target="done", actor="deterministic", executor=runs_itself)
    states = {"begun": State(transitions={"again": onward}), "done": State(terminal=True)}
    hub = Hub("deep", version="1.0.0")
    hub.workflow("endless", Workflow(initial_state="begun", states=states))

    async def play() -> list[str]:
        try:
            async with connect(hub) as client:
                await exercises_workflows.start(client, "endless")
            found = [read_body(instance) for instance in await hub.store.instances.latest("", 100)]
            return [(body.halted or {}).get("message", "") for body in sorted(found, key=lambda body: body.depth)]
        finally:
            await hub.stop()

    *others, deepest = asyncio.run(play())
    assert len(others) == 8
    assert deepest.endswith("Child workflows are nested more than 8 deep.")
    assert "| workflows that wait for each other | 8 deep |" in section(ANSWERS, "Limits")
