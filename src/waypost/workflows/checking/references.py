"""Whether everything that is named elsewhere is there: connections, capabilities and workflows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from waypost.config import Config
from waypost.config.executors import CapabilityCall, Child, Cli, Connection, Mcp, Rest, RestConnection
from waypost.config.findings import KeyPath, quoted
from waypost.config.proxy import Import
from waypost.config.workflows import Capability, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checking.flow import reached
from waypost.workflows.checking.places import Place, executors_of, followed, of_capability
from waypost.workflows.checking.report import Report
from waypost.workflows.resolving import nearest, resolve_capability

WORKFLOW_PREFIX = "workflow:"
SKILL_PREFIX = "skill:"


def check_references(config: Config, places: Iterable[Place], known: Collection[str] | None, report: Report) -> None:
    """Note every executor that names something that is not there."""
    for place in places:
        executor = place.executor
        if isinstance(executor, Cli | Rest | Mcp):
            _check_connection(executor, config.connections, place.path, report)
        elif isinstance(executor, Child):
            check_workflow_name(executor.definition_id, config, (*place.path, "definitionId"), report)
        elif isinstance(executor, CapabilityCall):
            _check_call(executor, config, place.path, known, report)


def check_capabilities(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Note every entry of `capabilities` that comes to nothing."""
    steps = {name: list(made_from(entry, name)) for name, entry in capabilities.items()}
    for name, entry in capabilities.items():
        path = ("capabilities", name)
        if entry.wraps is not None and entry.wraps not in capabilities:
            sentence = f"there is no capability {quoted(entry.wraps)}; {nearest(entry.wraps, capabilities)}"
            report.add((*path, "wraps"), sentence, "WF012")
            continue
        if entry.wraps is None and entry.executor is None:
            report.add(path, f"the capability {quoted(name)} runs nothing; give it `executor` or `wraps`", "WF013")
        if name in reached(steps[name], steps):
            sentence = f"the capability {quoted(name)} is made from itself; give it or one it is made from an executor"
            report.add((*path, "wraps" if entry.wraps is not None else "executor"), sentence, "WF013")


def check_capability_name(
    name: str, config: Config, path: KeyPath, known: Collection[str] | None, report: Report
) -> None:
    """Note a call of something that the hub does not offer."""
    if name.startswith(WORKFLOW_PREFIX):
        check_workflow_name(name.removeprefix(WORKFLOW_PREFIX), config, path, report)
        return
    if known is not None and name not in known and not _comes_later(name, config):
        sentence = f"there is no capability {quoted(name)}; {nearest(name, {*known, *config.capabilities})}"
        report.add(path, sentence, "WF012")


def _comes_later(name: str, config: Config) -> bool:
    """Whether something may be offered that nobody knows before the hub runs.

    That is a skill, a function of a worker by its id or as a tool (`a::b`, `a__b`), or a tool of another server.
    """
    if name.startswith(SKILL_PREFIX):
        return config.skills is not None and config.skills.dynamic is not None
    if config.workers is not None and ("::" in name or "__" in name):
        return True
    return any(may_bring(one, name, config.connections) for one in config.proxy.imports)


def may_bring(one: Import, name: str, connections: Mapping[str, Connection]) -> bool:
    """Whether an import may take over a tool of that name; what an OpenAPI document describes is known already."""
    prefix = f"{one.prefix or one.connection}."
    if not name.startswith(prefix) or isinstance(connections.get(one.connection), RestConnection):
        return False
    own = name.removeprefix(prefix)
    return own not in one.exclude and (not one.include or own in one.include)


def called_names(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Every name of something the hub offers that a configuration calls, and where."""
    places = [place for name, one in config.workflows.items() for place in executors_of(one, ("workflows", name))]
    places += [
        place for name, one in config.capabilities.items() for place in of_capability(one, ("capabilities", name))
    ]
    for index, entry in enumerate(config.proxy.expose):
        own = Capability(executor=entry.executor, reliability=entry.reliability)
        places += of_capability(own, ("proxy", "expose", index))
    for place in places:
        if isinstance(place.executor, CapabilityCall) and place.executor.capability not in config.capabilities:
            yield (*place.path, "capability"), place.executor.capability
    for name, workflow in config.workflows.items():
        for index, step in enumerate(workflow.steps):
            if step.capability is not None:
                yield ("workflows", name, "steps", index, "capability"), step.capability


def check_workflow_name(name: str, config: Config, path: KeyPath, report: Report) -> None:
    """Note a workflow that is not there."""
    if name not in config.workflows:
        report.add(path, f"there is no workflow {quoted(name)}; {nearest(name, config.workflows)}", "WF014")


def check_circles(config: Config, report: Report) -> None:
    """Note workflows that start each other in a circle."""
    starts = {name: dict(_started_by(name, workflow, config)) for name, workflow in config.workflows.items()}
    for name, others in starts.items():
        for other, path in others.items():
            if name in reached([other], starts):
                back = f"{quoted(other)} starts {quoted(name)} again" if other != name else "it would never end"
                sentence = f"{quoted(name)} starts {quoted(other)} and {back}; remove one of the starts"
                report.add(path, sentence, "WF015")


def _check_connection(
    executor: Cli | Rest | Mcp, connections: Mapping[str, Connection], path: KeyPath, report: Report
) -> None:
    name, kind = executor.connection, executor.__struct_config__.tag
    if name is None:
        return
    fitting = [other for other, connection in connections.items() if connection.__struct_config__.tag == kind]
    if name not in connections:
        sentence = f"there is no connection {quoted(name)}; {nearest(name, fitting)}"
        report.add((*path, "connection"), sentence, "WF010")
    elif name not in fitting:
        other = connections[name].__struct_config__.tag
        sentence = f"the connection {quoted(name)} is of the kind `{other}`; name one of the kind `{kind}`"
        report.add((*path, "connection"), sentence, "WF011")


def _check_call(
    call: CapabilityCall, config: Config, path: KeyPath, known: Collection[str] | None, report: Report
) -> None:
    if call.capability not in config.capabilities:
        check_capability_name(call.capability, config, (*path, "capability"), known, report)
        return
    if call.arguments is not None:
        sentence = (
            f"{quoted(call.capability)} is an entry of `capabilities` and takes no arguments here; "
            "put them into the capability's own executor"
        )
        report.add((*path, "arguments"), sentence, "WF016")
    if path[0] == "workflows" and path[4:5] == ("onEnter",) and _has_guards(call.capability, config.capabilities):
        sentence = f"{quoted(call.capability)} has guards, which nothing checks here; run it in a transition"
        report.add((*path, "capability"), sentence, "WF017")


def _has_guards(name: str, capabilities: Mapping[str, Capability]) -> bool:
    try:
        return bool(resolve_capability(name, capabilities).guards)
    except DefinitionError:
        return False


def made_from(entry: Capability, name: str) -> Iterator[str]:
    """The entries that an entry wraps or names."""
    if entry.wraps is not None:
        yield entry.wraps
    for place in of_capability(entry, ("capabilities", name)):
        if isinstance(place.executor, CapabilityCall):
            yield place.executor.capability


def _started_by(name: str, workflow: Workflow, config: Config) -> Iterator[tuple[str, KeyPath]]:
    path: KeyPath = ("workflows", name)
    for place in followed(executors_of(workflow, path), config.capabilities):
        executor = place.executor
        if isinstance(executor, Child):
            yield executor.definition_id, place.path if place.via else (*place.path, "definitionId")
        elif isinstance(executor, CapabilityCall) and executor.capability.startswith(WORKFLOW_PREFIX):
            where = place.path if place.via else (*place.path, "capability")
            yield executor.capability.removeprefix(WORKFLOW_PREFIX), where
    for index, step in enumerate(workflow.steps):
        if step.capability is not None and step.capability.startswith(WORKFLOW_PREFIX):
            yield step.capability.removeprefix(WORKFLOW_PREFIX), (*path, "steps", index, "capability")
