"""What a server declares to its clients: name, versions, instructions and capabilities."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.capability import Kind
from waypost.capabilities.context import Services
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Registry
from waypost.protocol.responses import ModernEncoder
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.wire import versions
from waypost.wire.definitions import Implementation, ResourceDefinition, SkillEntry
from waypost.wire.versions import LATEST_LEGACY

Hook = Callable[..., Awaitable[Any] | Any]

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"
_SKILLS_SETTINGS: Final = {"directoryRead": True}
_EXTENSIONS: Final = {"tasks": TASKS_EXTENSION, "skills": SKILLS_EXTENSION}
_ANSWERING_HOOKS: Final = {
    "prompts": ("list_prompts", "prompt_get"),
    "resources": ("list_resources", "list_resource_templates", "resource_read"),
}
"""Hooks that may offer prompts and resources which are not registered."""


class Host(Services, Protocol):
    """The hub behind an engine: what it says about itself, and the hooks of its user."""

    @property
    def hides(self) -> bool: ...
    def is_hidden(self, principal: Principal, name: str) -> bool: ...
    def expects(self, capability: str) -> bool: ...
    def hook(self, name: str) -> Hook | None: ...
    def server_info(self) -> Implementation | Mapping[str, Any]: ...
    def server_capabilities(self) -> dict[str, Any] | None: ...
    def supported_protocol_versions(self) -> Sequence[str]: ...
    def instructions(self) -> str | None: ...


class SkillSource(Protocol):
    """Skills whose files are resources of the registry."""

    def entries(self) -> Sequence[SkillEntry]:
        """Every skill, in the order of the URIs."""

    def entry(self, uri: str) -> SkillEntry | None:
        """The skill whose SKILL.md has this URI."""

    def children(self, uri: str) -> Sequence[ResourceDefinition] | None:
        """The entries of a directory, in the order of the URIs; `None` if there is no such directory."""


class ServerProfile:
    """The declared capabilities of a server: as configured, else derived from the registry."""

    def __init__(self, host: Host, registry: Registry) -> None:
        self.host = host
        self.skills: SkillSource | None = None
        self._registry = registry

    @cached_property
    def info(self) -> Implementation:
        """The server's name and version."""
        return msgspec.convert(self.host.server_info(), Implementation)

    @cached_property
    def modern_encoder(self) -> ModernEncoder:
        """Encodes results for stateless clients, which get the server's name with each."""
        return ModernEncoder(self.info)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """The versions served, oldest first."""
        served = self.host.supported_protocol_versions()
        return tuple(version for version in versions.ALL if version in served)

    @cached_property
    def legacy_versions(self) -> tuple[str, ...]:
        """The versions with sessions."""
        return tuple(version for version in self.versions if not versions.is_modern(version))

    @cached_property
    def modern_versions(self) -> tuple[str, ...]:
        """The versions without sessions."""
        return tuple(version for version in self.versions if versions.is_modern(version))

    @property
    def instructions(self) -> str | None:
        """How to use the server."""
        return self.host.instructions()

    @property
    def has_task_tools(self) -> bool:
        """Whether any tool can run as a task."""
        return self._registry.tools.tasked > 0

    @property
    def offers_subscriptions(self) -> bool:
        """Whether clients may subscribe to resources."""
        return bool(self.capabilities().get("resources", {}).get("subscribe"))

    def offers_list_changed(self, capability: str) -> bool:
        """Whether clients are notified when this list changes."""
        return bool(self.capabilities().get(capability, {}).get("listChanged"))

    def announces(self, kind: str) -> bool:
        """Whether changes of a list are sent; derived capabilities would miss that a list just became empty."""
        return self.host.server_capabilities() is None or self.offers_list_changed(kind)

    def offers(self, capability: str) -> bool:
        """Whether this server has a capability, so that its methods exist."""
        if self._is_configured:
            declared = self.host.server_capabilities() or {}
            is_there = capability != "skills" or self.skills is not None
            return is_there and (
                capability in declared or _EXTENSIONS.get(capability) in declared.get("extensions", {})
            )
        match capability:
            case "tools":
                return True
            case "skills":
                return self.skills is not None
            case "tasks":
                return self.has_task_tools
            case "prompts":
                return len(self._registry[Kind.PROMPT]) > 0 or self._is_expected(capability)
            case "resources":
                listed = len(self._registry[Kind.RESOURCE]) + len(self._registry[Kind.TEMPLATE])
                return listed > 0 or self._is_expected(capability)
            case "completions":
                return self._can_complete()
            case _:
                return True

    @cached_property
    def _is_configured(self) -> bool:
        return self.host.server_capabilities() is not None

    def _is_expected(self, capability: str) -> bool:
        """Whether the hub or a hook may answer for a capability without registered items."""
        hooks = _ANSWERING_HOOKS[capability]
        return self.host.expects(capability) or any(self.host.hook(hook) is not None for hook in hooks)

    def _can_complete(self) -> bool:
        has_targets = len(self._registry[Kind.PROMPT]) > 0 or len(self._registry[Kind.TEMPLATE]) > 0
        return has_targets or self.host.hook("completion") is not None

    def capabilities(self, version: str = LATEST_LEGACY) -> dict[str, Any]:
        """The capabilities declared to clients of a version."""
        declared = self.host.server_capabilities()
        if declared is not None:
            return declared
        derived: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
        if self.offers("resources"):
            derived["resources"] = {"listChanged": True}
            if any(row.mcp.subscribable for kind in (Kind.RESOURCE, Kind.TEMPLATE) for row in self._registry[kind]):
                derived["resources"]["subscribe"] = True
        if self.offers("prompts"):
            derived["prompts"] = {"listChanged": True}
        if self._can_complete() and versions.at_least(version, versions.V2025_03_26):
            derived["completions"] = {}
        # Tasks were part of 2025-11-25, and became an extension in 2026-07-28.
        if self.has_task_tools and versions.is_modern(version):
            derived["extensions"] = {TASKS_EXTENSION: {}}
        elif self.has_task_tools and version == versions.V2025_11_25:
            derived["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if self.skills is not None and self.skills.entries():
            derived.setdefault("extensions", {})[SKILLS_EXTENSION] = _SKILLS_SETTINGS
        return derived
