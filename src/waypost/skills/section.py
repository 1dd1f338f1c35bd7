"""What the section `skills` of a configuration asks for, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.config import SkillLimits, Skills
from waypost.skills.answers import ReadResource
from waypost.skills.calls import Calls
from waypost.skills.core import CORE
from waypost.skills.core.settings import CoreSettings
from waypost.skills.core_tools import core_tools
from waypost.skills.limits import Limits
from waypost.skills.skill_set import SkillSet
from waypost.stores.store import Store
from waypost.upstreams.egress import Egress

_TIMEOUT: Final = 30.0


class SkillSection:
    """The core skills that are wanted, and the skills of a directory."""

    def __init__(
        self,
        settings: Skills,
        registry: Registry,
        store: Store,
        data: Path,
        read_resource: ReadResource,
        exchanged: Callable[[str], None],
    ) -> None:
        timeout = None if settings.timeout_ms is None else settings.timeout_ms / 1000
        self._egress = Egress(settings.allow_private)
        self._inside = Egress(allow_private=True)
        surroundings = CoreSettings(
            egress=self._egress,
            inside=self._inside,
            searxng=settings.searxng,
            shell_allowed=tuple(tuple(words) for words in settings.shell),
            data_directory=data,
            timeout=timeout or _TIMEOUT,
        )
        self.calls = Calls()
        self.core = core_tools(settings.core, surroundings, timeout, self.calls, sanitize=settings.sanitize)
        self.dynamic: SkillSet | None = None
        if settings.dynamic is not None:
            self.dynamic = SkillSet(
                registry,
                store,
                Path(settings.dynamic),
                permissions=settings.permissions,
                core=[skill.name for skill in CORE],
                limits=_limits(settings.limits),
                timeout=timeout,
                autoload=settings.autoload,
                sanitize=settings.sanitize,
                read_resource=read_resource,
                calls=self.calls,
                exchanged=exchanged,
            )
        self._watches = settings.watch
        self._watching: asyncio.Task[None] | None = None
        self._stop_watching = asyncio.Event()

    @property
    def rows(self) -> list[Capability]:
        """The tools of all skills that can be called."""
        return [*self.core, *(() if self.dynamic is None else self.dynamic.rows)]

    async def start(self) -> None:
        """Serve the skills of the directory, and look after its files if that is wanted."""
        if self.dynamic is not None:
            await self.dynamic.start()
            self.watch()

    async def prepare(self, before: SkillSection | None) -> None:
        """Have everything ready that is served once it has taken the place of another section."""
        if self.dynamic is not None:
            leaving = () if before is None else [row.id for row in before.rows]
            await self.dynamic.prepare(None if before is None else before.dynamic, leaving)

    def watch(self) -> None:
        """Look after the files of the directory, if that is wanted."""
        if self.dynamic is not None and self._watches and self._watching is None:
            self._stop_watching = asyncio.Event()
            self._watching = asyncio.get_running_loop().create_task(self.dynamic.watch(self._stop_watching))

    def retire(self) -> None:
        """Serve nothing more; calls that run end on what they began on, and `close` is for when they have."""
        self._stop_watching.set()
        if self._watching is not None:
            self._watching.cancel()
        if self.dynamic is not None:
            self.dynamic.retire()

    async def close(self) -> None:
        """End all processes and connections."""
        self._stop_watching.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        if self.dynamic is not None:
            await self.dynamic.close()
        await self._egress.close()
        await self._inside.close()


def _limits(settings: SkillLimits) -> Limits:
    return Limits(
        processes=settings.processes,
        waiting=settings.waiting,
        idle=settings.idle_ms / 1000,
        start=settings.start_ms / 1000,
        cpu=settings.cpu_seconds,
        memory=settings.memory_bytes,
        files=settings.files,
        file_size=settings.file_bytes,
        result=settings.result_bytes,
        output=settings.output_bytes,
    )
