"""The dynamic skills of a directory: loaded, tested, versioned, unloaded and rolled back while the hub runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.config.files import changes
from waypost.errors import StaleVersion
from waypost.skills import files
from waypost.skills.declarations import PERMISSIONS, Declaration, agree, examined
from waypost.skills.files import Limits, SkillNotFound, SkillRefused, Source
from waypost.skills.processes import Calls, ImportFailed, Pool, Process, ProcessEnded, Program
from waypost.skills.tools import Answers, ReadResource, cleaning, dynamic_tool, handler, tool_name
from waypost.stores import schema
from waypost.stores.records import Documents
from waypost.stores.store import Store

_log: Final = logging.getLogger(__name__)

MOST_KEPT: Final = 10
_PAGE: Final = 100


class Version(msgspec.Struct, frozen=True):
    """A source that served once."""

    sha256: str
    version: str
    source: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A skill on record."""

    file: str
    sha256: str
    version: str
    permissions: tuple[str, ...]
    routes: tuple[str, ...]
    external: bool
    enabled: bool
    source: str
    description: str = ""
    previous: tuple[Version, ...] = ()

    def kept(self) -> tuple[Version, ...]:
        """The versions before this one, and this one, as far as they are kept."""
        return (*self.previous, Version(self.sha256, self.version, self.source))[-MOST_KEPT:]


class Kept(msgspec.Struct, frozen=True):
    """A record and its revision in the store."""

    name: str
    revision: int
    record: Record


def make_record(source: Source, declaration: Declaration, before: Record | None) -> Record:
    """The record of a skill that serves from now on."""
    previous: tuple[Version, ...] = ()
    if before is not None:
        kept = before.previous if before.sha256 == source.sha256 else before.kept()
        previous = tuple(version for version in kept if version.sha256 != source.sha256)
    return Record(
        file=source.file,
        sha256=source.sha256,
        version=declaration.version or "",
        permissions=declaration.permissions or (),
        routes=declaration.routes or (),
        external=bool(declaration.external),
        enabled=True,
        source=source.text,
        description=declaration.description or "",
        previous=previous,
    )


async def get_record(documents: Documents, name: str) -> Kept | None:
    """The record of a skill."""
    found = await documents.get(name)
    return None if found is None else Kept(found.id, found.version, _record(found.value))


async def list_records(documents: Documents) -> list[Kept]:
    """All records, in the order of their names."""
    found: list[Kept] = []
    after = ""
    while page := await documents.page(after, _PAGE):
        for document in page:
            try:
                found.append(Kept(document.id, document.version, _record(document.value)))
            except msgspec.ValidationError as error:
                _log.error("the record of the skill %s cannot be read: %s", document.id, error)
        after = page[-1].id
    return found


async def put_record(documents: Documents, name: str, changed: Record, revision: int) -> Kept:
    """Write a record over the one that has that revision, 0 if there is none."""
    written = await documents.put(name, msgspec.to_builtins(changed), revision)
    return Kept(name, written.version, changed)


def _record(value: Any) -> Record:
    return msgspec.convert(value, Record)


class SkillInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, core or dynamic; `status` is `serving`, `unloaded`, or `refused` for a `reason`."""

    name: str
    type: str
    status: str = "serving"
    reason: str = ""
    description: str = ""
    file: str = ""
    version: str = ""
    sha256: str = ""
    permissions: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    external: bool = False
    revision: int = 0
    previous: tuple[str, ...] = ()


def core_info(name: str) -> SkillInfo:
    """A skill that ships with the hub."""
    return SkillInfo(name=name, type="core")


def dynamic_info(kept: Kept, *, is_serving: bool, reason: str = "") -> SkillInfo:
    """A skill on record; its earlier versions are named by the start of their sha256, latest last."""
    record = kept.record
    status = "serving" if is_serving else "refused" if record.enabled else "unloaded"
    return SkillInfo(
        name=kept.name,
        type="dynamic",
        status=status,
        reason=reason if status == "refused" else "",
        description=record.description,
        file=record.file,
        version=record.version,
        sha256=record.sha256,
        permissions=record.permissions,
        routes=record.routes,
        external=record.external,
        revision=kept.revision,
        previous=tuple(version.sha256[:12] for version in record.previous),
    )


async def tried(source: Source, program: Program, limits: Limits) -> Process:
    """A process that has imported the skill, ready for its first call; anything against it is `SkillRefused`."""
    try:
        process = await Process.started(program, limits)
    except ImportFailed as error:
        raise _trial_refusal(source, error) from None
    except ProcessEnded as error:
        raise SkillRefused("import_failed", f"{source.file} cannot be imported: {error}.") from None
    try:
        await asyncio.to_thread(agree, source, process.ready)
    except BaseException:
        process.kill()
        raise
    return process


def _trial_refusal(source: Source, error: ImportFailed) -> SkillRefused:
    failed = error.failed
    if failed.kind == "MissingRun":
        return SkillRefused("missing_run", f"{source.file} cannot be run: {failed.message}.")
    if failed.line is not None:
        return SkillRefused("compilation_error", f"{source.file}, line {failed.line}: {failed.message}.")
    return SkillRefused("import_failed", f"{source.file} cannot be imported: {failed.kind}: {failed.message}.")


_KIND: Final = schema.EXECUTABLES.name


class _Serving(msgspec.Struct, frozen=True):
    """A skill that can be called."""

    kept: Kept
    capability: Capability
    program: Program


class SkillSet:
    """All dynamic skills of one directory; a change that fails changes nothing."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        directory: Path,
        *,
        permissions: Iterable[str] = (),
        core: Collection[str] = (),
        limits: Limits | None = None,
        timeout: float | None = None,
        autoload: bool = True,
        sanitize: bool = False,
        read_resource: ReadResource | None = None,
        calls: Calls | None = None,
        alert: Callable[[str], None] = _log.warning,
        exchanged: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory = directory
        self.known = frozenset((*PERMISSIONS, *permissions))
        self.core = frozenset(core)
        self.limits = Limits() if limits is None else limits
        self.pool = Pool(self.limits)
        self._registry = registry
        self._store = store
        self._timeout = timeout
        self._autoload = autoload
        self._sanitize = sanitize
        self._read_resource = read_resource
        self._calls = calls or Calls()
        self._alert = alert
        self._exchanged = exchanged
        self._serving: dict[str, _Serving] = {}
        self._refused: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._is_retired = False
        self._revision: int | None = None
        """How often skills on record had been changed when they were read last, by whichever hub."""
        self._leaving: frozenset[str] | None = None
        """The tools that make room for these, while those are made ready and not served yet."""

    @property
    def rows(self) -> list[Capability]:
        """The tools of all skills that can be called."""
        return [serving.capability for serving in self._serving.values()]

    @property
    def _documents(self) -> Documents:
        return self._store.executables

    async def start(self) -> None:
        """Serve what is on record and unchanged, and with autoload what is new."""
        await self._take_in(())

    async def _take_in(self, refused: Collection[str]) -> None:
        async with self._changing():
            self._revision = await self._counted()  # what changes from now on is noticed by the next refresh
            on_record = await list_records(self._documents)
            for kept in on_record:
                if kept.record.enabled and kept.name not in self._serving and kept.name not in refused:
                    await self._alerting(kept.name, self._restore(kept))
            if self._autoload:
                known = {kept.record.file for kept in on_record}
                for file in await asyncio.to_thread(files.found, self.directory):
                    if file not in known:
                        await self._alerting(file, self._load_first(file))

    async def refresh(self) -> None:
        """Serve what a start would serve by now of what is on record, where other hubs changed that."""
        if self._turn.locked():  # whoever changes something here may take long
            return
        with suppress(SkillRefused):  # which a set is that was exchanged
            async with self._changing():
                revision = await self._counted()
                if revision != self._revision:
                    for kept in await list_records(self._documents):
                        await self._catch_up(kept)
                    self._revision = revision

    async def _counted(self) -> int:
        return (await self._store.revisions()).get(_KIND, 0)

    async def _catch_up(self, kept: Kept) -> None:
        """Go by a record, whoever wrote it."""
        serving, known = self._serving.get(kept.name), self._refused.get(kept.name)
        if not kept.record.enabled:
            self._stop_serving(kept.name)
        elif serving is None or serving.kept.revision != kept.revision:
            try:
                await self._restore(kept)
            except SkillRefused as error:
                self._stop_serving(kept.name)
                self._refused[kept.name] = error.message
                if known != error.message:
                    self._alert(_refusal(kept.name, error))

    async def close(self) -> None:
        """Take the tools out of the registry and end all processes."""
        if self._leaving is None:
            self._registry.remove(self.rows)
        self._serving.clear()
        await self.pool.close()

    async def prepare(self, before: SkillSet | None, leaving: Collection[str]) -> None:
        """Have ready what `start` would serve, and what another set serves of the same directory; nothing is seen yet.

        `leaving` are the tools that make room for it. The other set changes nothing until it is retired or let go.
        """
        self._leaving = frozenset(leaving)
        if before is not None and before.directory == self.directory:
            for serving in list(before._serving.values()):
                await self._alerting(serving.kept.name, self._carry_over(serving.kept))
        await self._take_in(tuple(self._refused))

    def begin(self) -> None:
        """What was made ready is in the registry from now on."""
        self._leaving = None

    async def hold(self) -> None:
        """Change nothing until it is let go or retired."""
        await self._turn.acquire()

    def let_go(self) -> None:
        """Change what is asked for again."""
        self._turn.release()

    def retire(self) -> None:
        """Serve and change nothing more; calls that run end on what they began on."""
        for serving in self._serving.values():
            self.pool.retire(serving.program)
        self._serving.clear()
        self._is_retired = True
        self.let_go()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        async with self._turn:
            if self._is_retired:
                raise SkillRefused("section_changed", "The section skills has just changed; try again.")
            yield

    async def load(self, file: str) -> SkillInfo:
        """Serve the skill in a file, named relative to the directory."""
        async with self._changing():
            return await self._load(file)

    async def unload(self, name: str) -> None:
        """Serve a skill no more; its file and versions stay."""
        async with self._changing():
            kept = await self._kept(name)
            disabled = msgspec.structs.replace(kept.record, enabled=False)
            await put_record(self._documents, name, disabled, kept.revision)
            self._stop_serving(name)

    def _stop_serving(self, name: str) -> None:
        self._refused.pop(name, None)
        serving = self._serving.pop(name, None)
        if serving is not None:
            self._registry.remove([serving.capability])
            self.pool.retire(serving.program)
            self._exchanged(serving.capability.id)

    async def reload(self, name: str) -> SkillInfo:
        """Serve what a skill's file holds now, whatever its version."""
        async with self._changing():
            kept = await self._kept(name)
            return await self._exchange(await self._read(kept.record.file), kept)

    async def rollback(self, name: str, to: str | None = None) -> SkillInfo:
        """Serve the version before, or one by its version or the start of its sha256; the file holds it again."""
        async with self._changing():
            kept = await self._kept(name)
            source = _earlier(kept, to)
            with files.exchanged(self.directory, source):
                return await self._exchange(source, kept)

    async def create(self, name: str) -> Path:
        """Write a file with a skill to start from; it is not loaded yet."""
        self._check_not_core(name)
        return await asyncio.to_thread(files.create, self.directory, name)

    async def listing(self) -> list[SkillInfo]:
        """Every skill there is, core ones too, in the order of their names."""
        on_record = await list_records(self._documents)
        return sorted(
            [*map(core_info, filter(self._is_tool, self.core)), *map(self._info, on_record)],
            key=lambda info: info.name,
        )

    async def watch(self, stop: asyncio.Event) -> None:
        """Reload skills whose files change, and with autoload load new ones, until `stop` is set."""
        async for changed in changes(self._watched, stop):
            for path in sorted(changed):
                if path.suffix == files.SUFFIX and path.exists():
                    await self._notice(files.given_name(self.directory, path))

    def _watched(self) -> list[Path]:
        root = self.directory.resolve()
        return [root, *(root / file for file in files.found(root))]

    async def _notice(self, file: str) -> None:
        async with self._changing():
            kept = await get_record(self._documents, Path(file).stem)
            if kept is not None and kept.record.file == file:
                if kept.record.enabled:
                    await self._alerting(kept.name, self._follow(kept))
            elif self._autoload:
                await self._alerting(file, self._load(file))

    async def _follow(self, kept: Kept) -> None:
        source = await self._read(kept.record.file)
        if source.sha256 != kept.record.sha256 or kept.name not in self._serving:
            await self._exchange(source, kept)

    async def _alerting(self, what: str, change: Awaitable[object]) -> None:
        """Do what may be refused; a refusal is told, and what served goes on serving."""
        try:
            await change
        except SkillRefused as error:
            self._refused[what] = error.message
            self._alert(_refusal(what, error))

    async def _restore(self, kept: Kept) -> None:
        """Serve what is on record, if its file still holds the same."""
        source = await self._read(kept.record.file)
        if source.sha256 != kept.record.sha256:
            raise SkillRefused(
                "checksum_mismatch",
                f"{source.file} changed since it was loaded; look at it, then reload the skill {kept.name}.",
            )
        self._check_free(kept.name)
        await self._serve_source(kept, source)

    async def _carry_over(self, kept: Kept) -> None:
        """Serve what another set serves, whatever its file holds by now."""
        await self._serve_source(kept, files.source(kept.name, kept.record.file, kept.record.source))

    async def _serve_source(self, kept: Kept, source: Source) -> None:
        declaration = await asyncio.to_thread(examined, source, self.known)
        self._serve(kept, declaration, _program(source, declaration))

    async def _load(self, file: str) -> SkillInfo:
        source = await self._read(file)
        self._check_free(source.name)
        kept = await get_record(self._documents, source.name)
        if kept is not None and kept.record.enabled and kept.record.file != source.file:
            raise SkillRefused(
                "name_taken", f"The skill {source.name} is in {kept.record.file}; unload it, or rename {source.file}."
            )
        return await self._exchange(source, kept, is_forced=source.name not in self._serving)

    async def _load_first(self, file: str) -> None:
        """Serve a file that is new, unless another hub on the same store is just doing that."""
        try:
            await self._load(file)
        except StaleVersion:
            kept = await get_record(self._documents, Path(file).stem)
            if kept is not None and kept.record.enabled:
                await self._restore(kept)

    async def _exchange(self, source: Source, kept: Kept | None, *, is_forced: bool = True) -> SkillInfo:
        """Serve a source from now on instead of what served under its name before."""
        declaration = await asyncio.to_thread(examined, source, self.known)
        if not is_forced and kept is not None and (declaration.version or "") == kept.record.version:
            version = kept.record.version
            loaded = f"in version {version}; give it another" if version else "without a version; give it one"
            raise SkillRefused("same_version", f"The skill {source.name} is loaded already, {loaded}, or reload it.")
        program = _program(source, declaration)
        process = await tried(source, program, self.limits)
        try:
            before = None if kept is None else kept.record
            record = make_record(source, declaration, before)
            written = await put_record(self._documents, source.name, record, 0 if kept is None else kept.revision)
            self._serve(written, declaration, program)
        except BaseException:
            self.pool.discard(process)
            raise
        self.pool.adopt(process)
        return self._info(written)

    def _serve(self, kept: Kept, declaration: Declaration, program: Program) -> None:
        """Exchange the tool in one step; calls that run end on the version they began on."""
        answers = Answers(kept.name, self._store, self._read_resource)
        run = self._calls.counted(handler(program, self.pool, answers))
        if self._sanitize and declaration.external:
            run = cleaning(run)
        tool = dynamic_tool(kept.name, declaration, run, revision=kept.revision, timeout=self._timeout)
        old = self._serving.get(kept.name)
        if self._leaving is None:
            self._registry.replace([] if old is None else [old.capability], [tool])
        self._serving[kept.name] = _Serving(kept, tool, program)
        self._exchanged(tool.id)
        self._refused.pop(kept.name, None)
        if old is not None:
            self.pool.retire(old.program)

    async def _read(self, file: str) -> Source:
        return await asyncio.to_thread(files.read, self.directory, file)

    async def _kept(self, name: str) -> Kept:
        """The record of a skill that is loaded, or was refused at the start."""
        if name in self.core:
            raise SkillRefused("cannot_unload_core", f"{name} is a core skill; only dynamic skills can be changed.")
        kept = await get_record(self._documents, name)
        if kept is None or not kept.record.enabled:
            raise SkillNotFound(name, (*self._serving, *self._refused))
        return kept

    def _check_not_core(self, name: str) -> None:
        if name in self.core:
            raise SkillRefused("name_conflicts_with_core", f"There is a core skill {name}; choose another name.")

    def _check_free(self, name: str) -> None:
        """Refuse a name that belongs to a core skill, or to a tool that somebody else registered."""
        self._check_not_core(name)
        if name not in self._serving and self._is_tool(name):
            raise SkillRefused("name_conflicts_with_core", f"There is a tool {tool_name(name)}; choose another name.")

    def _is_tool(self, name: str) -> bool:
        tool = tool_name(name)
        return tool in self._registry.tools and tool not in (self._leaving or ())

    def _info(self, kept: Kept) -> SkillInfo:
        return dynamic_info(kept, is_serving=kept.name in self._serving, reason=self._refused.get(kept.name, ""))


def _refusal(what: str, error: SkillRefused) -> str:
    return f"The skill {what} is refused ({error.code}): {error.message}"


def _program(source: Source, declaration: Declaration) -> Program:
    return Program(source.name, source.file, source.text.encode(), declaration.permissions or ())


def _earlier(kept: Kept, to: str | None) -> Source:
    """The source of an earlier version."""
    fitting = [
        version
        for version in kept.record.previous
        if to is None or version.version == to or (len(to) >= 6 and version.sha256.startswith(to))
    ]
    if not fitting:
        wanted = "earlier version" if to is None else f"earlier version {to[:80]}"
        raise SkillRefused("no_earlier_version", f"The skill {kept.name} has no {wanted}.")
    return files.source(kept.name, kept.record.file, fitting[-1].source)
