"""Workflows: which definitions there are, how they look, and making and changing them while the hub runs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from waypost.api.operated import Operated
from waypost.api.routing import Route
from waypost.config.workflows import Workflow
from waypost.errors import InvalidParams, WorkflowRefused
from waypost.workflows import explaining, graph
from waypost.workflows.creating import Created
from waypost.workflows.definition import Definition

Format = Literal["mermaid", "dot", "svg"]
Written = Annotated[dict[str, Any], Meta(description="A workflow as the configuration file has it.")]


class WorkflowRow(msgspec.Struct, frozen=True):
    """A workflow that can be started, unless it is disabled."""

    id: str
    title: str
    version: str
    enabled: bool
    source: Literal["configured", "given", "created"] | None
    revision: int | None = None
    """How often one that was created was written; names it when it is changed."""


class WorkflowRows(msgspec.Struct, frozen=True):
    """All workflows, by id."""

    workflows: list[WorkflowRow]


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a workflow is to be drawn, and with which state marked."""

    format: Format = "mermaid"
    state: str | None = None


class Drawing(msgspec.Struct, frozen=True):
    """A picture as text."""

    format: Format
    text: str


class NewWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workflow to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    workflow: Written


class ChangedWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow is to be from now on; with a revision, only if it still has that."""

    workflow: Written
    revision: int | None = None


class WorkflowDocument(msgspec.Struct, frozen=True):
    """A workflow to pass on to another hub."""

    version: Any = None
    workflow: Any = None
    steps: Any = None


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow as it is now."""

    workflow: WorkflowRow


class Removed(msgspec.Struct, frozen=True):
    """The workflow that cannot be started any more; what runs goes on."""

    id: str
    status: Literal["removed"] = "removed"


async def list_workflows(hub: Operated) -> WorkflowRows:
    """All workflows."""
    found = [_row(hub, one) for one in hub.workflows.engine.library]
    return WorkflowRows(sorted(found, key=lambda row: row.id))


async def show_workflow(hub: Operated, id: str) -> dict[str, Any]:
    """A workflow: its states, its transitions and its input."""
    found = _known(hub, id)
    return {**msgspec.to_builtins(_row(hub, found)), **explaining.definition(found)}


async def draw_workflow(hub: Operated, id: str, query: GraphQuery) -> Drawing:
    """A picture of a workflow."""
    found = _known(hub, id)
    model = msgspec.structs.replace(found.model, title=found.title)
    draw = {"mermaid": graph.mermaid, "dot": graph.dot, "svg": graph.svg}[query.format]
    return Drawing(query.format, draw(model, query.state))


async def create_workflow(hub: Operated, body: NewWorkflow) -> WorkflowChange:
    """Have one workflow more."""
    return _made(hub, await hub.workflows.creating.create(body.name, _model(body.workflow)))


async def change_workflow(hub: Operated, id: str, body: ChangedWorkflow) -> WorkflowChange:
    """Exchange a workflow for another under its name; what runs goes on as it began."""
    return _changed(hub, await hub.workflows.creating.change(id, _model(body.workflow), body.revision))


async def enable_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Let a workflow be started."""
    return _changed(hub, await hub.workflows.creating.enable(id))


async def disable_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Let a workflow be started no more."""
    return _changed(hub, await hub.workflows.creating.disable(id))


async def duplicate_workflow(hub: Operated, id: str) -> WorkflowChange:
    """Make a copy, disabled."""
    return _made(hub, await hub.workflows.creating.duplicate(id))


async def remove_workflow(hub: Operated, id: str) -> Removed:
    """Have a workflow no more."""
    await hub.workflows.creating.remove(id)
    return Removed(id)


async def export_workflow(hub: Operated, id: str) -> WorkflowDocument:
    """A workflow as a document."""
    return msgspec.convert(hub.workflows.creating.export(id), WorkflowDocument)


async def import_workflow(hub: Operated, body: WorkflowDocument) -> WorkflowChange:
    """Make the workflow of a document, under a name that is free."""
    return _made(hub, await hub.workflows.creating.take_in(msgspec.to_builtins(body)))


def _made(hub: Operated, one: Created) -> WorkflowChange:
    """What was made; a hub that had no workflows yet looks after timeouts from now on."""
    hub.workflows.watch.start()
    return _changed(hub, one)


def _changed(hub: Operated, one: Created) -> WorkflowChange:
    return WorkflowChange(_row(hub, _known(hub, one.name)))


def _model(written: dict[str, Any]) -> Workflow:
    try:
        model = msgspec.convert(written, Workflow)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"The workflow is not what is expected: {error}.") from None
    unknown = _unknown(written, msgspec.to_builtins(model), "")
    if unknown:
        raise InvalidParams(f"The workflow is not what is expected: there is no key {unknown}.")
    return model


def _unknown(written: Any, understood: Any, place: str) -> str:
    """The first key that was written and not understood; keys that were not understood are not in the model."""
    if isinstance(written, dict) and isinstance(understood, dict):
        for key, value in written.items():
            if key not in understood:
                return f"{place}{key}"
            if found := _unknown(value, understood[key], f"{place}{key}."):
                return found
    if isinstance(written, list) and isinstance(understood, list):
        for number, (value, known) in enumerate(zip(written, understood, strict=False)):
            if found := _unknown(value, known, f"{place}{number}."):
                return found
    return ""


def _row(hub: Operated, one: Definition) -> WorkflowRow:
    source = hub.workflows.source(one.id)
    revision = hub.workflows.creating.get(one.id).version if source == "created" else None
    return WorkflowRow(one.id, one.title, one.model.version, one.model.enabled, source, revision)


def _known(hub: Operated, id: str) -> Definition:
    library = hub.workflows.engine.library
    found = library.get(id)
    if found is None:
        near = library.nearest(id)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise WorkflowRefused(f"There is no workflow {id}{hint}", "UNKNOWN_ID")
    return found


_ROW: Final = WorkflowRow("release", "Release", "1.0.0", True, "created", 1)
_CHANGE: Final = WorkflowChange(_ROW)
_WRITTEN: Final = {
    "title": "Release",
    "initialState": "draft",
    "states": {"draft": {"transitions": {"ship": {"target": "shipped"}}}, "shipped": {"terminal": True}},
}
_DOCUMENT: Final = WorkflowDocument(1, {"name": "release", **_WRITTEN}, [])
_PLACE: Final = "/api/v1/workflows"

ROUTES: Final = (
    Route("GET", _PLACE, list_workflows, "All workflows", answer=WorkflowRows([_ROW])),
    Route("POST", _PLACE, create_workflow, "Make a workflow", 201, NewWorkflow("release", _WRITTEN), _CHANGE),
    Route("POST", f"{_PLACE}/import", import_workflow, "Make a workflow from a document", 201, _DOCUMENT, _CHANGE),
    Route(
        "GET",
        f"{_PLACE}/{{id}}",
        show_workflow,
        "A workflow",
        answer={**msgspec.to_builtins(_ROW), "definitionId": "release", "initialState": "draft", "states": {}},
    ),
    Route("DELETE", f"{_PLACE}/{{id}}", remove_workflow, "Remove a workflow", answer=Removed("release")),
    Route(
        "POST",
        f"{_PLACE}/{{id}}/change",
        change_workflow,
        "Exchange a workflow for another",
        example=ChangedWorkflow(_WRITTEN, 1),
        answer=_CHANGE,
    ),
    Route("POST", f"{_PLACE}/{{id}}/enable", enable_workflow, "Let a workflow be started", answer=_CHANGE),
    Route("POST", f"{_PLACE}/{{id}}/disable", disable_workflow, "Let a workflow be started no more", answer=_CHANGE),
    Route("POST", f"{_PLACE}/{{id}}/duplicate", duplicate_workflow, "Copy a workflow", 201, answer=_CHANGE),
    Route("GET", f"{_PLACE}/{{id}}/export", export_workflow, "A workflow as a document", answer=_DOCUMENT),
    Route(
        "GET",
        f"{_PLACE}/{{id}}/graph",
        draw_workflow,
        "A picture of a workflow",
        answer=Drawing("mermaid", "stateDiagram-v2\n"),
    ),
)
