"""Names of connections, capabilities and workflows: whether they exist, and whether `proxy.expose` can offer them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from waypost.capabilities.capability import read_header_parameters
from waypost.config import Config
from waypost.config.findings import KeyPath, quoted
from waypost.config.models import Capability, Connection, Expose, Import, ItemName, RestConnection, Workflow
from waypost.errors import DefinitionError
from waypost.workflows.checking.data_flow import Look, Reader, check_schema
from waypost.workflows.checking.places import Place, Report, executors_at, executors_of, look_through, reached
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.kind import Reference, kind_of, names_in
from waypost.workflows.guards import kind as guards
from waypost.workflows.resolution import nearest, resolve_capability

WORKFLOW_PREFIX = "workflow:"
SKILL_PREFIX = "skill:"


def check_references(config: Config, places: Iterable[Place], known: Collection[str] | None, report: Report) -> None:
    """Report every executor that names something that does not exist."""
    for place in places:
        for reference in names_in(place.executor):
            where = (*place.path, reference.key)
            match reference.target:
                case "capability":
                    _check_call(place, reference, config, known, report)
                case "workflow":
                    check_workflow_name(reference.name, config, where, report)
                case type() as kind:
                    _check_connection(reference.name, kind, config.connections, where, report)


def check_executors(places: Iterable[Place], report: Report) -> None:
    """Report what is wrong with executors as they are written."""
    for place in places:
        if (check := kind_of(place.executor).check) is not None:
            check(place.executor, place.path, report)


def check_places(places: Iterable[Place], capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report executors that cannot run where they stand."""
    for place in look_through(places, capabilities):
        if (check := kind_of(place.executor).check_place) is not None:
            check(place.executor, place, report)


def check_capabilities(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report every entry of `capabilities` that comes to nothing."""
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
    """Report a call of something that the hub does not offer."""
    if name.startswith(WORKFLOW_PREFIX):
        check_workflow_name(name.removeprefix(WORKFLOW_PREFIX), config, path, report)
        return
    if known is not None and name not in known and not _may_be_offered_later(name, config):
        sentence = f"there is no capability {quoted(name)}; {nearest(name, {*known, *config.capabilities})}"
        report.add(path, sentence, "WF012")


def _may_be_offered_later(name: str, config: Config) -> bool:
    """Whether a name may come to be offered once the hub runs.

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
        place for name, one in config.capabilities.items() for place in executors_at(one, ("capabilities", name))
    ]
    for index, entry in enumerate(config.proxy.expose):
        places += executors_at(entry, ("proxy", "expose", index))
    for place in places:
        for key, target, name in names_in(place.executor):
            if target == "capability" and name not in config.capabilities:
                yield (*place.path, key), name
    for name, workflow in config.workflows.items():
        for index, step in enumerate(workflow.steps):
            if step.capability is not None:
                yield ("workflows", name, "steps", index, "capability"), step.capability


def check_workflow_name(name: str, config: Config, path: KeyPath, report: Report) -> None:
    """Report a workflow that is not there."""
    if name not in config.workflows:
        report.add(path, f"there is no workflow {quoted(name)}; {nearest(name, config.workflows)}", "WF014")


def check_circles(config: Config, report: Report) -> None:
    """Report workflows that start each other in a circle."""
    starts = {name: dict(_started_workflows(name, workflow, config)) for name, workflow in config.workflows.items()}
    for name, others in starts.items():
        for other, path in others.items():
            if name in reached([other], starts):
                back = f"{quoted(other)} starts {quoted(name)} again" if other != name else "it would never end"
                sentence = f"{quoted(name)} starts {quoted(other)} and {back}; remove one of the starts"
                report.add(path, sentence, "WF015")


def _check_connection(
    name: str, wanted: type[Connection], connections: Mapping[str, Connection], path: KeyPath, report: Report
) -> None:
    kind = wanted.__struct_config__.tag
    fitting = [other for other, connection in connections.items() if connection.__struct_config__.tag == kind]
    if name not in connections:
        sentence = f"there is no connection {quoted(name)}; {nearest(name, fitting)}"
        report.add(path, sentence, "WF010")
    elif name not in fitting:
        other = connections[name].__struct_config__.tag
        sentence = f"the connection {quoted(name)} is of the kind `{other}`; name one of the kind `{kind}`"
        report.add(path, sentence, "WF011")


def _check_call(
    place: Place, reference: Reference, config: Config, known: Collection[str] | None, report: Report
) -> None:
    path, name, call = place.path, reference.name, place.executor
    if name not in config.capabilities:
        check_capability_name(name, config, (*path, reference.key), known, report)
        return
    if isinstance(call, CapabilityCall) and call.arguments is not None:
        sentence = (
            f"{quoted(name)} is an entry of `capabilities` and takes no arguments here; "
            "put them into the capability's own executor"
        )
        report.add((*path, "arguments"), sentence, "WF016")
    if path[0] == "workflows" and path[4:5] == ("onEnter",) and _has_guards(name, config.capabilities):
        sentence = f"{quoted(name)} has guards, which nothing checks here; run it in a transition"
        report.add((*path, reference.key), sentence, "WF017")


def _has_guards(name: str, capabilities: Mapping[str, Capability]) -> bool:
    try:
        return bool(resolve_capability(name, capabilities).guards)
    except DefinitionError:
        return False


def made_from(entry: Capability, name: str) -> Iterator[str]:
    """The entries that an entry wraps or names."""
    if entry.wraps is not None:
        yield entry.wraps
    for place in executors_at(entry, ("capabilities", name)):
        yield from (one.name for one in names_in(place.executor) if one.target == "capability")


def _started_workflows(name: str, workflow: Workflow, config: Config) -> Iterator[tuple[str, KeyPath]]:
    path: KeyPath = ("workflows", name)
    for place in look_through(executors_of(workflow, path), config.capabilities):
        for key, target, called in names_in(place.executor):
            if target == "workflow" or (target == "capability" and called.startswith(WORKFLOW_PREFIX)):
                yield called.removeprefix(WORKFLOW_PREFIX), place.path if place.via else (*place.path, key)
    for index, step in enumerate(workflow.steps):
        if step.capability is not None and step.capability.startswith(WORKFLOW_PREFIX):
            yield step.capability.removeprefix(WORKFLOW_PREFIX), (*path, "steps", index, "capability")


def check_exposures(config: Config, known: Collection[str] | None, report: Report) -> None:
    """Report everything that cannot be offered as it is written."""
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
    elif name is not None and entry.as_ is None and not _is_tool_name(name):
        report.add((*path, "capability"), f"{quoted(name)} is no name for a tool; give it one with `as`", "WF060")
    else:
        return True
    return False


def _is_tool_name(name: str) -> bool:
    try:
        msgspec.convert(name, ItemName)
    except msgspec.ValidationError:
        return False
    return True


def _check_entry(entry: Expose, config: Config, path: KeyPath, known: Collection[str] | None, report: Report) -> None:
    places = [dataclasses.replace(place, exposed=True) for place in executors_at(entry, path)]
    check_references(config, places, known, report)
    check_executors(places, report)
    check_schema(entry.input_schema, (*path, "inputSchema"), report)
    _check_root(entry.input_schema, (*path, "inputSchema"), report)
    inner = _resolve_named(entry, config)
    if inner is None:
        return
    named = (*path, "capability")
    if entry.input_schema is None:
        _check_root(inner.input_schema, named, report)
    of_inner = [dataclasses.replace(place, path=named, via="", exposed=True) for place in executors_at(inner, path)]
    every = [*look_through(places, config.capabilities), *of_inner]
    check_places(every, {}, report)
    for guard, where in [*((one, (*path, "guards")) for one in entry.guards), *((one, named) for one in inner.guards)]:
        if guards.kind_of(guard).needs_instance(guard):
            report.add(where, "evidence is only left in a workflow, so this guard never holds", "WF061")
    _check_looks(entry, inner, every, path, report)


def _resolve_named(entry: Expose, config: Config) -> Capability | None:
    """The capability that an entry names, an empty one if it names none, `None` if it cannot be resolved."""
    if entry.capability is None:
        return Capability()
    try:
        found = resolve_capability(entry.capability, config.capabilities)
    except DefinitionError:  # it was noted where it is written
        return None
    return found if entry.executor is None else replace(found, executor=None)


def _check_root(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    if schema is None:
        return
    if schema.get("type", "object") != "object":
        report.add(key, "arguments are an object, so the root type of their schema is `object`", "WF031")
    try:
        read_header_parameters(schema)
    except DefinitionError as error:
        report.add(key, error.message, "WF031")


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
