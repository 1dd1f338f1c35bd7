"""Names of connections, capabilities and workflows: whether they exist, and whether `proxy.expose` can offer them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waypost.capabilities.capability import header_parameters
from waypost.config import Config
from waypost.config.executors import CapabilityCall, Child, Cli, Connection, Human, Mcp, Rest, RestConnection
from waypost.config.findings import KeyPath, quoted
from waypost.config.proxy import Expose, Import, ItemName
from waypost.config.workflows import AllOf, AnyOf, Capability, EvidenceGuard, Guard, Not, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checking.data_flow import Look, Reader, check_schema
from waypost.workflows.checking.executors import check_depth, check_executors
from waypost.workflows.checking.places import Place, Report, executors_of, followed, of_capability, reached
from waypost.workflows.resolution import nearest, resolve_capability

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


def check_exposures(config: Config, known: Collection[str] | None, report: Report) -> None:
    """Note everything that cannot be offered as it is written."""
    for index, entry in enumerate(config.proxy.expose):
        path = ("proxy", "expose", index)
        if _check_form(entry, config, path, report):
            _check_entry(entry, config, path, known, report)


def _check_form(entry: Expose, config: Config, path: KeyPath, report: Report) -> bool:
    """Whether an entry is one of the two that there are."""
    name = entry.capability
    if (entry.name is None) == (name is None):
        sentence = (
            "an entry has `name`, where it is written here, or `capability`, which names one; give one of the two"
        )
        report.add(path, sentence, "WF060")
    elif name is None and entry.as_ is not None:
        report.add((*path, "as"), "`as` is the name of a `capability`; what is written here has `name`", "WF060")
    elif name is not None and name not in config.capabilities:
        sentence = f"there is no capability {quoted(name)}; {nearest(name, config.capabilities)}"
        report.add((*path, "capability"), sentence, "WF012")
    elif name is not None and entry.as_ is None and not _fits(name):
        report.add((*path, "capability"), f"{quoted(name)} is no name for a tool; give it one with `as`", "WF060")
    else:
        return True
    return False


def _fits(name: str) -> bool:
    try:
        msgspec.convert(name, ItemName)
    except msgspec.ValidationError:
        return False
    return True


def _check_entry(entry: Expose, config: Config, path: KeyPath, known: Collection[str] | None, report: Report) -> None:
    own = Capability(executor=entry.executor, reliability=entry.reliability)
    places = list(of_capability(own, path))
    check_references(config, places, known, report)
    check_executors(places, report)
    check_depth(places, config.capabilities, report)
    _check_input(entry.input_schema, (*path, "inputSchema"), report)
    inner = _inner(entry, config)
    if inner is None:
        return
    named = (*path, "capability")
    if entry.input_schema is None:
        _check_root(inner.input_schema, named, report)
    every = [*followed(iter(places), config.capabilities), *(_at(named, place) for place in of_capability(inner, path))]
    for place in every:
        if isinstance(place.executor, Human):
            sentence = "people are only waited for in a workflow; start one that asks them instead"
            report.add(place.path, sentence, "WF061")
    for guard, where in [*((one, (*path, "guards")) for one in entry.guards), *((one, named) for one in inner.guards)]:
        if _needs_evidence(guard):
            report.add(where, "evidence is only left in a workflow, so this guard never holds", "WF061")
    _check_looks(entry, inner, every, path, report)


def _inner(entry: Expose, config: Config) -> Capability | None:
    """What an entry names, or nothing but an empty one; `None` where that cannot be told."""
    if entry.capability is None:
        return Capability()
    try:
        found = resolve_capability(entry.capability, config.capabilities)
    except DefinitionError:  # it was noted where it is written
        return None
    return found if entry.executor is None else replace(found, executor=None)


def _at(path: KeyPath, place: Place) -> Place:
    return Place(place.executor, path, place.within, via=place.via or "", depth=place.depth)


def _check_input(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    check_schema(schema, key, report)
    _check_root(schema, key, report)


def _check_root(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    if schema is None:
        return
    if schema.get("type", "object") != "object":
        report.add(key, "arguments are an object, so the root type of their schema is `object`", "WF031")
    try:
        header_parameters(schema)
    except DefinitionError as error:
        report.add(key, error.message, "WF031")


def _needs_evidence(guard: Guard) -> bool:
    match guard:
        case EvidenceGuard():
            return True
        case AllOf():
            return any(map(_needs_evidence, guard.guards))
        case AnyOf():
            return bool(guard.guards) and all(map(_needs_evidence, guard.guards))
        case Not():
            return False
        case _:
            return False


def _check_looks(entry: Expose, inner: Capability, places: list[Place], path: KeyPath, report: Report) -> None:
    for look in _looks(entry, inner, places, path, report):
        if look.path.root in ("context", "input", "workflow"):
            sentence = f"there is nothing at {quoted(look.path.text)} outside of a workflow; use `$.arguments`"
            report.add(look.key, sentence, "WF062")


def _looks(entry: Expose, inner: Capability, places: list[Place], path: KeyPath, report: Report) -> Iterator[Look]:
    yield from Reader(report).guards(entry.guards, (*path, "guards"))
    named = (*path, "capability")
    yield from (Look(named, look.path) for look in Reader().guards(inner.guards, named))
    for place in places:
        # What is wrong with a capability is said where it is written.
        yield from Reader(report if place.via is None else None).executor(place)
