"""A hub from a configuration file, kept up to date while it runs.

`ConfiguredHub` reads the file, imports its toolkits and writes its prompts into the registry. A change of any file it
came from, or SIGHUP, builds everything anew and exchanges it in one step; a mistake leaves what is there as it is.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import signal
import sys
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from waypost import config
from waypost.capabilities.capability import Capability
from waypost.capabilities.components import Component
from waypost.capabilities.expansion import expand
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.prompts import prompt_from_template
from waypost.capabilities.toolkits import Toolkit, tool_options
from waypost.config import references
from waypost.config.findings import KeyPath
from waypost.errors import ConfigError, DefinitionError, StoreError
from waypost.hub import Hub
from waypost.policy.audit import Record
from waypost.policy.rules import Rule, decider
from waypost.stores import places

if TYPE_CHECKING:
    from waypost.policy import Authentication
    from waypost.skills.section import SkillSection
    from waypost.workflows.workflows import Workflows

_log: Final = logging.getLogger(__name__)
_AT_START: Final = ("server", "store", "bus", "skills", "audit")
"""Sections that are looked at when the hub starts, and not again."""


class ConfiguredHub(Hub):
    """A hub whose capabilities come from a configuration file."""

    def __init__(self, path: Path) -> None:
        loaded, capabilities = _read(path)
        server = loaded.config.server
        super().__init__(
            server.name,
            server.version,
            instructions=server.instructions,
            tool_timeout=loaded.config.tool_timeout,
            session_idle=server.session_idle_ms / 1000,
            max_sessions=server.max_sessions,
            page_size=server.page_size,
            names=server.names,
            max_body=server.max_body_bytes,
            allowed_hosts=server.allowed_hosts,
            allowed_origins=server.allowed_origins,
            allow_anonymous_remote=server.allow_anonymous_remote,
            task_after=server.task_after_ms / 1000,
            auth=authentication(loaded.config.auth),
            store=loaded.config.store.url,
            policies=rules(loaded.config.policies),
            audit=loaded.config.audit.sink,
            breakers=True,
            max_running=server.max_running,
            max_waiting=server.max_waiting,
        )
        self.settle_in(places.data_directory(path.absolute()))
        self.loaded = loaded
        self._configured = capabilities
        self._reloading = asyncio.Lock()
        self._hangups = asyncio.Event()
        self._stop_watching = asyncio.Event()
        self._watchers: list[asyncio.Task[None]] = []
        self.registry.add(capabilities)
        self._skills = self._skill_section(loaded.config.skills)
        self._define(loaded.config)

    @cached_property
    def workflows(self) -> Workflows:
        """State machines that agents are led through, and the settings that can be read beside them."""
        made = super().workflows
        made.show_settings(lambda: self.loaded.config)
        settings = self.loaded.config
        made.define(settings.workflows, settings.capabilities, settings.connections)
        return made

    def _define(self, settings: config.Config) -> None:
        """Have the workflows that a configuration asks for."""
        if settings.workflows or self.has_workflows:
            self.workflows.define(settings.workflows, settings.capabilities, settings.connections)

    def _skill_section(self, settings: config.Skills | None) -> SkillSection | None:
        if settings is None:
            return None
        from waypost.skills.section import SkillSection

        section = SkillSection(
            settings,
            self.registry,
            lambda: self.store,
            self._data,
            read_resource=lambda uri, ctx: self._pipeline.read(uri, ctx.caller),
            exchanged=self.guard.forgive,
        )
        self.registry.add(section.core)
        self.skills = section.dynamic
        return section

    async def reload(self) -> bool:
        """Read the file again; on any mistake everything stays as it is, and the log says what is wrong."""
        async with self._reloading:
            try:
                loaded, capabilities = await asyncio.to_thread(_read, self.loaded.path)
                self._exchange(loaded.config, capabilities)
                hidden = self._hiding()
                self.guard.policy.replace(rules(loaded.config.policies))
            except (ConfigError, DefinitionError) as error:
                _log.error("the configuration was not reloaded: %s", error)
                return False
            for section in _AT_START:
                if getattr(loaded.config, section) != getattr(self.loaded.config, section):
                    _log.warning("changes in the section %s take effect at the next start", section)
            self._pipeline.timeout = loaded.config.tool_timeout
            self.loaded, self._configured = loaded, capabilities
            if self._hiding() != hidden:
                for kind in ("tools", "prompts", "resources"):
                    await self.notify_changed(kind)
            self._record_reload()
            _log.info("the configuration was reloaded")
            return True

    def _record_reload(self) -> None:
        if self.guard.audit is not None:
            told = str(self.loaded.path)
            self.guard.audit.add(
                Record(time.time(), "hub", "console", "config", "allow", "config.reloaded", told, outcome="ok")
            )

    def _exchange(self, settings: config.Config, capabilities: list[Capability]) -> None:
        """Offer what a configuration asks for, all of it or nothing."""
        self._define(settings)
        try:
            self.registry.replace(self._configured, capabilities)
        except DefinitionError:
            self._define(self.loaded.config)
            raise
        if self.has_workflows:
            self.workflows.start()

    def _hiding(self) -> list[Rule]:
        """The rules that keep something out of lists."""
        return [rule for rule in self.guard.policy.rules if rule.hide and rule.enabled]

    async def start(self) -> None:
        """Begin to serve and to watch the files."""
        await super().start()
        if self._watchers:
            return
        if self._skills is not None:
            await self._skills.start()
        self._hangups, self._stop_watching = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self._watchers = [loop.create_task(self._watch_files()), loop.create_task(self._watch_hangups())]
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, self._hangups.set)

    async def stop(self) -> None:
        """Stop watching, then everything else."""
        if self._watchers:
            self._stop_watching.set()
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._watchers = []
        if self._skills is not None:
            await self._skills.close()
        await super().stop()

    async def _watch_files(self) -> None:
        async for _ in config.changes(lambda: self.loaded.watched, self._stop_watching):
            await self.reload()

    async def _watch_hangups(self) -> None:
        while True:
            await self._hangups.wait()
            self._hangups.clear()
            await self.reload()


def _read(path: Path) -> tuple[config.Loaded, list[Capability]]:
    loaded = config.load(path)
    return loaded, build(loaded)[0]


def authentication(auth: config.Auth | None) -> Authentication | None:
    """Who may use the hub, as the section `auth` says."""
    if auth is None:
        return None
    from waypost.policy import Authentication, Key, OAuthSettings

    oauth = None
    if auth.oauth is not None:
        oauth = OAuthSettings(
            issuer=auth.oauth.issuer,
            resource=auth.oauth.resource,
            jwks=auth.oauth.jwks if "://" in auth.oauth.jwks else Path(auth.oauth.jwks),
            scopes=tuple(auth.oauth.scopes),
        )
    keys = [Key(key.id, key.hash, tuple(key.roles), tuple(key.permissions), tuple(key.scopes)) for key in auth.keys]
    return Authentication(keys, oauth, _anonymous(auth.anonymous))


def _anonymous(given: config.Anonymous | bool | None) -> Principal | Literal[False] | None:
    if given is None or given is False:
        return given
    if given is True:
        return ANONYMOUS
    return Principal("anonymous", tuple(given.roles), tuple(given.permissions), tuple(given.scopes))


def build(loaded: config.Loaded) -> tuple[list[Capability], list[config.Finding]]:
    """Everything a configuration asks for, and warnings; mistakes are collected and raised as one `ConfigError`."""
    capabilities: list[tuple[KeyPath, Capability]] = []
    findings = [*_check_store(loaded), *_check_policies(loaded)]
    seen: set[tuple[object, str]] = set()
    place: KeyPath
    for index, entry in enumerate(loaded.config.toolkits):
        place = ("toolkits", index)
        try:
            found = _expand_toolkit(entry)
        except DefinitionError as error:
            findings.append(loaded.finding(place, error.message, "CFG042"))
        except (Exception, SystemExit) as error:  # whatever a toolkit does is a mistake of its file, not of the hub
            findings.append(loaded.finding(place, f"it cannot be made: {type(error).__name__}: {error}", "CFG042"))
        else:
            capabilities += [(place, capability) for capability in found]
    for name, prompt in loaded.config.prompts.items():
        place = ("prompts", name)
        try:
            capabilities.append((place, _prompt(name, prompt)))
        except DefinitionError as error:
            findings.append(loaded.finding(place, error.message, "CFG013"))
    for place, capability in capabilities:
        key = (capability.kind, capability.id)
        if key in seen:
            message = f"two capabilities are called `{capability.id}`; give one of them another name"
            findings.append(loaded.finding(place, message, "CFG043"))
        seen.add(key)
    found = [capability for _, capability in capabilities]
    findings += _check_workflows(loaded, found)
    errors = [one for one in findings if one.severity == "error"]
    if errors:
        raise ConfigError(str(errors[0]), findings)
    return found, findings


def _check_workflows(loaded: config.Loaded, capabilities: list[Capability]) -> list[config.Finding]:
    """What can be proved about the workflows before the first one runs."""
    settings = loaded.config
    if not settings.workflows and not settings.capabilities:
        return []
    from waypost.skills.core import CORE
    from waypost.workflows.checking import check_workflows

    known = {capability.id for capability in capabilities} | {f"workflow:{name}" for name in settings.workflows}
    if settings.skills is not None:
        known |= {f"skill:{skill.name}" for skill in CORE}
        if settings.skills.dynamic is not None:
            known |= {f"skill:{file.stem}" for file in Path(settings.skills.dynamic).glob("*.py")}
    return check_workflows(loaded, known)


def _check_store(loaded: config.Loaded) -> list[config.Finding]:
    """What is wrong with the store's URL; nothing is opened."""
    try:
        places.database(loaded.config.store.url, Path())
    except StoreError as error:
        return [loaded.finding(("store", "url"), error.message, "CFG061")]
    return []


def _check_policies(loaded: config.Loaded) -> list[config.Finding]:
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


def rules(policies: list[config.Policy]) -> list[Rule]:
    """The rules of a configuration."""
    return [msgspec.convert(policy, Rule, from_attributes=True) for policy in policies]


def _prompt(name: str, prompt: config.PromptTemplate) -> Capability:
    return prompt_from_template(
        name,
        prompt.template,
        title=prompt.title,
        description=prompt.description,
        arguments=[(one.name, one.description, one.required) for one in prompt.arguments],
    )


def check(path: Path) -> list[config.Finding]:
    """Everything that is wrong with a configuration, including what only shows when its toolkits are loaded."""
    findings = config.check(path)
    if any(found.severity == "error" for found in findings):
        return findings
    try:
        findings += build(config.load(path))[1]
    except ConfigError as error:
        findings += error.findings
    return sorted(findings, key=lambda found: (found.file != str(path), found.file, found.line))


def _expand_toolkit(entry: str | config.ToolkitUse) -> list[Capability]:
    if isinstance(entry, str):
        return expand(find(entry))
    return expand(
        find(entry.use),
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
        raise DefinitionError(f"{target} has no {name!r}.") from None


def load_module(target: str) -> ModuleType:
    """Import a module by its name, or a file by its path, freshly."""
    file = references.file_of(target)
    try:
        return importlib.import_module(target) if file is None else _load_file(file)
    except DefinitionError:
        raise
    except (Exception, SystemExit) as error:
        raise DefinitionError(f"{target} cannot be imported: {type(error).__name__}: {error}.") from error


def _load_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"waypost_file_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Type hints and dataclasses look their module up by name.
    sys.modules[spec.name] = module
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Bytecode is matched by whole seconds: an edit within one would go unseen.
    exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)  # noqa: S102
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
