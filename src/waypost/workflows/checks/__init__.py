"""Checks of workflows before the first one runs: errors and warnings with their codes."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from waypost.config import Config, Loaded
from waypost.config.findings import Finding
from waypost.config.models import Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checks.data_flow import (
    check_capability_guards,
    check_capability_reading,
    check_data_flow,
    check_reading,
    check_satisfiability,
    check_schema,
)
from waypost.workflows.checks.places import Report, executors_at, executors_of
from waypost.workflows.checks.structure import (
    check_arguments,
    check_capabilities,
    check_circles,
    check_dangers,
    check_executors,
    check_exposures,
    check_places,
    check_reachability,
    check_references,
    check_steps,
    check_structure,
)
from waypost.workflows.definitions import resolve

__all__ = ["check_workflows"]


def check_workflows(loaded: Loaded, known: Collection[str] | None) -> list[Finding]:
    """The findings about the workflows and capabilities of a configuration.

    `known` are the canonical names of the hub's capabilities; None if unknown, then names are not checked.
    """
    report = Report(loaded)
    config = loaded.config
    _check_capabilities(config, known, report)
    for name, workflow in config.workflows.items():
        _check_workflow(name, workflow, config, known, report)
    check_circles(config, report)
    check_exposures(config, known, report)
    return report.findings


def _check_capabilities(config: Config, known: Collection[str] | None, report: Report) -> None:
    check_capabilities(config.capabilities, report)
    check_capability_reading(config.capabilities, report)
    check_capability_guards(config.capabilities, report)
    for name, entry in config.capabilities.items():
        places = list(executors_at(entry, ("capabilities", name)))
        check_references(config, places, known, report)
        check_executors(places, report)
        check_schema(entry.input_schema, ("capabilities", name, "inputSchema"), report)


def _check_workflow(
    name: str, workflow: Workflow, config: Config, known: Collection[str] | None, report: Report
) -> None:
    path = ("workflows", name)
    check_structure(workflow, path, report)
    check_schema(workflow.input_schema, (*path, "inputSchema"), report)
    check_steps(workflow, config, path, known, report)
    _check_executors(workflow, config, path, known, report)
    check_reading(workflow, config.capabilities, path, report)
    resolved = workflow
    # What cannot be resolved was reported above; the checks below then use the workflow as written.
    with suppress(DefinitionError):
        resolved = resolve(workflow, config.capabilities)
    check_arguments(workflow, resolved, path, report)
    check_reachability(resolved, path, report)
    check_data_flow(workflow, resolved, config.capabilities, path, report)
    check_satisfiability(workflow, resolved, path, report)
    check_dangers(workflow, resolved, config.capabilities, path, report)


def _check_executors(
    workflow: Workflow, config: Config, path: tuple[str, str], known: Collection[str] | None, report: Report
) -> None:
    places = list(executors_of(workflow, path))
    check_references(config, places, known, report)
    check_executors(places, report)
    check_places(places, config.capabilities, report)
    for state, model in workflow.states.items():
        for name, transition in model.transitions.items():
            check_schema(transition.input_schema, (*path, "states", state, "transitions", name, "inputSchema"), report)
