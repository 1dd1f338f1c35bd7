"""From a configuration to the capabilities it asks for, or to everything that is wrong with it."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waypost.buses import choose_bus_url, create_bus
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.components import Component
from waypost.capabilities.prompts import prompt_from_template
from waypost.capabilities.tools import Toolkit, expand, instantiate, tool_options
from waypost.config import rules as references
from waypost.config.findings import Finding, KeyPath
from waypost.config.loader import Loaded, examine, refuse, reload
from waypost.errors import DefinitionError, StoreError, WaypostError
from waypost.policy.rules import Rule, decider
from waypost.settings import DEFAULT_BUS, Auth, Policy, PromptTemplate, ToolkitUse, is_loopback
from waypost.stores import urls
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from waypost.imports.exposures import Offer


_HIDING: Final = ("CFG042", "CFG070", "CFG071")
"""Findings after which it is not known what else would be offered."""


class Built(NamedTuple):
    """What a configuration asks for, and warnings about it."""

    capabilities: list[Capability]
    findings: list[Finding]
    offers: list[Offer]
    """What its section `proxy` offers; a hub makes tools of it."""
    toolkits: list[Any]
    """The toolkits behind the capabilities, to be opened and closed with the hub."""


def read(path: Path) -> tuple[Loaded, Built]:
    """A configuration and everything it asks for; what is wrong with it is raised as one `ConfigError`."""
    loaded, built, findings = _examine(path)
    refuse(findings)
    assert loaded is not None
    assert built is not None
    return loaded, built


async def reread(before: Loaded) -> tuple[Loaded, Built]:
    """Load a running configuration again and build it; raises `ConfigError` where the running one has to stay."""
    loaded = await reload(before)
    built = await asyncio.to_thread(build, loaded)
    # Toolkits and OpenAPI documents are read while they are built, which is after the files came to rest.
    if not await asyncio.to_thread(loaded.snapshot.is_current):
        refuse([loaded.finding((), "the files changed while they were read; they are read again", "CFG035")])
    refuse(built.findings)
    return loaded, built


def build(loaded: Loaded) -> Built:
    """Everything a configuration asks for, with mistakes and warnings; what has mistakes is left out."""
    capabilities: list[tuple[KeyPath, Capability]] = []
    toolkits: list[Any] = []
    findings = [*_check_store(loaded), *_check_auth(loaded), *_check_policies(loaded)]
    seen: set[tuple[Kind, str]] = set()
    place: KeyPath
    for index, entry in enumerate(loaded.config.toolkits):
        place = ("toolkits", index)
        if loaded.doubts.cover(place) or loaded.doubts.cover((*place, "use")):
            continue
        try:
            made, found = _expand_toolkit(entry)
        except DefinitionError as error:
            findings.append(loaded.finding(place, error.message, "CFG042"))
        except (Exception, SystemExit) as error:  # whatever a toolkit does is a mistake of its file, not of the hub
            findings.append(loaded.finding(place, f"it cannot be made: {type(error).__name__}: {error}", "CFG042"))
        else:
            if not found:
                message = "it has no tools, resources or prompts; mark its functions with `@tool`"
                findings.append(loaded.finding(place, message, "CFG083"))
            toolkits += made
            capabilities += [(place, capability) for capability in found]
    for name, prompt in loaded.config.prompts.items():
        place = ("prompts", name)
        try:
            capabilities.append((place, _prompt(name, prompt)))
        except DefinitionError as error:
            findings.append(loaded.finding(place, error.message, "CFG013"))
    offers, noted = _find_offers(loaded)
    findings += noted
    named = [(place, capability.kind, capability.id) for place, capability in capabilities]
    for place, kind, name in [*named, *((place, Kind.TOOL, offer.name) for place, offer in offers)]:
        if (kind, name) in seen:
            message = f"two capabilities are called `{name}`; give one of them another name"
            findings.append(loaded.finding(place, message, "CFG043"))
        seen.add((kind, name))
    found = [capability for _, capability in capabilities]
    hides = loaded.doubts.hide_names or any(one.code in _HIDING for one in findings)
    # Where names are not known, workflows are not blamed for calling them.
    findings += _check_workflows(loaded, None if hides else {name for _, name in seen})
    return Built(found, findings, [offer for _, offer in offers], toolkits)


def _find_offers(loaded: Loaded) -> tuple[list[tuple[KeyPath, Offer]], list[Finding]]:
    proxy = loaded.config.proxy
    if not proxy.expose and not proxy.imports:
        return [], []
    from waypost.imports.exposures import build_offers

    return build_offers(loaded)


def _check_workflows(loaded: Loaded, offered: set[str] | None) -> list[Finding]:
    """What can be proved about the workflows before the first one runs; `offered` is None where that is not known."""
    settings = loaded.config
    if not settings.workflows and not settings.capabilities and not settings.proxy.expose:
        return []
    from waypost.workflows.checks import check_workflows

    if offered is None:
        return check_workflows(loaded, None)
    from waypost.skills.core import CORE

    known = offered | {f"workflow:{name}" for name in settings.workflows}
    if settings.skills is not None:
        known |= {f"skill:{skill.name}" for skill in CORE}
        if settings.skills.dynamic is not None:
            known |= {f"skill:{file.stem}" for file in Path(settings.skills.dynamic).glob("*.py")}
    return check_workflows(loaded, known)


def _check_store(loaded: Loaded) -> list[Finding]:
    """What is wrong with the URLs of the store and the bus; nothing is opened."""
    findings, settings = [], loaded.config
    of_store = "local"
    try:
        of_store = urls.create_database(settings.store.url, Path()).bus_url
    except StoreError as error:
        findings.append(loaded.finding(("store", "url"), str(error), "CFG061"))
        if settings.bus.url in ("postgres", "postgresql"):
            return findings
    try:
        if settings.bus.url != DEFAULT_BUS:
            create_bus(choose_bus_url(settings.bus.url, of_store), settings.cluster.id)
    except WaypostError as error:
        findings.append(loaded.finding(("bus", "url"), error.message.removesuffix("."), "CFG062"))
    return findings


def _check_auth(loaded: Loaded) -> list[Finding]:
    """What is wrong with keys and an authorization server that fit their models."""
    if loaded.config.auth is None:
        return []
    from waypost.identity.authentication import problems

    return [
        loaded.finding(("auth", *place), problem.removesuffix("."), "CFG066")
        for place, problem in problems(loaded.config.auth)
    ]


def _check_policies(loaded: Loaded) -> list[Finding]:
    """What is wrong with rules that fit their model."""
    findings = []
    for place, rule in enumerate(rules(loaded.config.policies)):
        try:
            decider(rule)
        except DefinitionError as error:
            where: KeyPath = ("policies", place, "config") if rule.config else ("policies", place)
            findings.append(loaded.finding(where, error.message, "CFG063"))
    names = [policy.name for policy in loaded.config.policies]
    for place, name in enumerate(names):
        if name in names[:place]:
            message = f"two policies are called `{name}`; give one of them another name"
            findings.append(loaded.finding(("policies", place, "name"), message, "CFG063"))
    return findings


def rules(policies: list[Policy]) -> list[Rule]:
    """The rules of a configuration."""
    return [msgspec.convert(policy, Rule, from_attributes=True) for policy in policies]


def _prompt(name: str, prompt: PromptTemplate) -> Capability:
    return prompt_from_template(
        name,
        prompt.template,
        title=prompt.title,
        description=prompt.description,
        arguments=[(one.name, one.description, one.required) for one in prompt.arguments],
    )


def check(path: Path) -> list[Finding]:
    """Everything that is wrong with a configuration, including what only shows when its toolkits are loaded."""
    loaded, built, findings = _examine(path)
    if loaded is not None and built is not None:
        findings += [*_find_unserved(loaded, built), *_find_open_addresses(loaded)]
        if loaded.config.proxy.imports:
            from waypost.imports.exposures import find_missing_tools

            findings += find_missing_tools(loaded)
    return sorted(findings, key=lambda found: (found.file != str(path), found.file, found.line))


def _examine(path: Path) -> tuple[Loaded | None, Built | None, list[Finding]]:
    """As much of a configuration as is sound, what it asks for, and everything that is wrong with it."""
    loaded, findings = examine(path)
    if loaded is None:
        return None, None, findings
    built = build(loaded)
    findings += [found for found in built.findings if not loaded.doubts.explain(found)]
    findings.sort(key=lambda found: (found.file != str(path), found.file, found.line))
    return loaded, built, findings


def _find_open_addresses(loaded: Loaded) -> list[Finding]:
    """Addresses at which the hub, or its port for workers, would be open to every caller from outside."""
    findings = []
    server, workers = loaded.config.server, loaded.config.workers
    is_closed = is_loopback(server.host) or server.allow_anonymous_remote
    if not is_closed and not loaded.doubts.concern("auth") and _accepts_anonymous(loaded.config.auth):
        message = (
            "it can be reached from outside and callers need no key; "
            "listen on 127.0.0.1, or set `server.allowAnonymousRemote` to true"
        )
        findings.append(loaded.finding(("server", "host"), message, "CFG067"))
    if workers is not None:
        from waypost.workers.sockets import is_open_to_all

        if is_open_to_all(workers):
            message = "workers can reach it from outside and need no token; listen on 127.0.0.1, or set `workers.token`"
            findings.append(loaded.finding(("workers", "host"), message, "CFG067"))
    return findings


def _accepts_anonymous(section: Auth | None) -> bool:
    if section is None:
        return True
    from waypost.identity.authentication import authentication

    try:
        return authentication(section).allows_anonymous
    except DefinitionError:  # which is reported already
        return False


def _find_unserved(loaded: Loaded, built: Built) -> list[Finding]:
    """What lies in folders of skills and prompts and cannot be served."""
    settings = loaded.config.skills
    if settings is None or not (settings.folders or settings.prompts):
        return []
    from waypost.documents.folders import problems

    workers = loaded.config.workers
    found = problems(
        settings.folders,
        settings.prompts,
        as_documents=workers is not None and workers.registry,
        taken={row.id for row in built.capabilities if row.kind is Kind.PROMPT},
    )
    return [loaded.finding(("skills", *place), str(one).removesuffix("."), "CFG080") for place, one in found]


def _expand_toolkit(entry: str | ToolkitUse) -> tuple[list[Any], list[Capability]]:
    """What an entry of `toolkits` names, as instances, and their capabilities."""
    if isinstance(entry, str):
        made = instantiate(find(entry))
        return made, expand(made)
    found = find(entry.use)
    made = instantiate(found, entry.config)
    return made, expand(
        made if isinstance(found, list) else made[0],
        name=entry.name,
        description=entry.description,
        category=entry.category,
        hidden=entry.hidden,
        visible=entry.visible,
    )


def find(reference: str) -> Any:
    """What a reference names: one object, or everything a module or file defines that can be registered."""
    target, name = references.split(reference)
    module = load_module(target)
    if name is None:
        return [thing for thing in vars(module).values() if _is_registrable(thing, module)]
    try:
        return getattr(module, name)
    except AttributeError:
        public = [known for known in vars(module) if not known.startswith("_")]
        raise DefinitionError(f"{target} has no {name!r}{did_you_mean(name, public, '; ') or '.'}") from None


def load_module(target: str) -> ModuleType:
    """Import a module by its name, or a file by its path, freshly."""
    file = references.file_of(target)
    try:
        return importlib.import_module(target) if file is None else _load_file(file)
    except DefinitionError:
        raise
    except (Exception, SystemExit) as error:
        raise DefinitionError(f"{target} cannot be imported: {type(error).__name__}: {error}.") from error


_loading: Final[ContextVar[frozenset[Path]]] = ContextVar("loading", default=frozenset())
"""The files that are being imported."""


def _load_file(file: Path) -> ModuleType:
    path = file.resolve()
    if path in _loading.get():
        raise DefinitionError(
            f"{file} makes a hub of a configuration that names this file in `toolkits`; move them to another file."
        )
    spec = importlib.util.spec_from_file_location(f"waypost_file_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Type hints and dataclasses look their module up by name.
    sys.modules[spec.name] = module
    # A file may import its neighbours, as a script may.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    before = _loading.set(_loading.get() | {path})
    try:
        # Bytecode is matched by whole seconds: an edit within one would go unseen.
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
    finally:
        _loading.reset(before)
    return module


def _is_registrable(thing: Any, module: ModuleType) -> bool:
    if getattr(thing, "__module__", None) != module.__name__:
        return False
    if isinstance(thing, type):
        entry = getattr(thing, "_entry", None)
        return issubclass(thing, Toolkit) or (
            issubclass(thing, Component) and entry is not None and hasattr(thing, entry)
        )
    return tool_options(thing) is not None or isinstance(thing, (Toolkit, Component))
