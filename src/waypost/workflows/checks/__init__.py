"""Checks of workflows before the first one runs: errors and warnings with their codes."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from waypost.config import Loaded
from waypost.config.findings import Finding
from waypost.config.models import ExpandedCapability, ExpandedWorkflow, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checks import data_flow, structure
from waypost.workflows.checks.data_flow import Report, executors_at, executors_of
from waypost.workflows.definitions import resolve

__all__ = ["check_workflows"]


def check_workflows(loaded: Loaded, known: Collection[str] | None) -> list[Finding]:
    """The findings about the workflows and capabilities of a configuration.

    `known` are the canonical names of the hub's capabilities; None if unknown, then names are not checked.
    """
    report = Report(loaded, known)
    config = loaded.config
    structure.check_capabilities(config.capabilities, report)
    for name, entry in config.capabilities.items():
        data_flow.check_capability(name, entry, report)
        if isinstance(entry, ExpandedCapability):
            data_flow.check_secrets(entry.written, ("capabilities", name), report)
        places = list(executors_at(entry, ("capabilities", name)))
        structure.check_references(places, report)
        structure.check_executors(places, report)
        data_flow.check_schema(entry.input_schema, ("capabilities", name, "inputSchema"), report)
    for name, workflow in config.workflows.items():
        _check_workflow(name, workflow, report)
    structure.check_circles(report)
    structure.check_exposures(report)
    return report.findings


def _check_workflow(name: str, workflow: Workflow, report: Report) -> None:
    path, capabilities = ("workflows", name), report.config.capabilities
    structure.check_structure(workflow, path, report)
    if isinstance(workflow, ExpandedWorkflow):
        data_flow.check_secrets(workflow.written, path, report)
    data_flow.check_schema(workflow.input_schema, (*path, "inputSchema"), report)
    structure.check_steps(workflow, path, report)
    places = list(executors_of(workflow, path))
    structure.check_references(places, report)
    structure.check_executors(places, report)
    structure.check_places(places, capabilities, report)
    for state, model in workflow.states.items():
        for called, transition in model.transitions.items():
            where = (*path, "states", state, "transitions", called, "inputSchema")
            data_flow.check_schema(transition.input_schema, where, report)
    data_flow.check_reading(workflow, path, report)
    resolved = workflow
    # What cannot be resolved was reported above; the checks below then use the workflow as written.
    with suppress(DefinitionError):
        resolved = resolve(workflow, capabilities)
    structure.check_arguments(workflow, resolved, path, report)
    structure.check_reachability(resolved, path, report)
    data_flow.check_data_flow(workflow, resolved, path, report)
    data_flow.check_satisfiability(workflow, resolved, path, report)
    structure.check_dangers(workflow, resolved, path, report)
