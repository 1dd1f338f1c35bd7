"""The dynamic skills of a directory: loaded, tested, versioned, unloaded and rolled back while the hub runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.registry import Registry
from waypost.config.files import changes
from waypost.errors import StaleVersion
from waypost.settings import SkillLimits
from waypost.skills import files
from waypost.skills.files import (
    PERMISSIONS,
    Declaration,
    SkillNotFound,
    SkillRefused,
    Source,
    check_source,
    compare_declaration,
)
from waypost.skills.processes import Calls, ImportFailed, Pool, Process, ProcessEnded, Program, remove_stale_scratch
from waypost.skills.tools import DynamicTools, ReadResource, tool_name
from waypost.stores import schema
from waypost.stores.store import Store

_log: Final = logging.getLogger(__name__)

MAX_VERSIONS: Final = 10
_PAGE_SIZE: Final = 100
_MIN_SHA256_PREFIX: Final = 6


class SkillVersion(msgspec.Struct, frozen=True):
    """An earlier source of a skill."""

    sha256: str
    version: str
    source: str


class SkillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as the store keeps it."""

    file: str
    sha256: str
    version: str
    permissions: tuple[str, ...]
    routes: tuple[str, ...]
    external: bool
    enabled: bool
    source: str
    description: str = ""
    previous: tuple[SkillVersion, ...] = ()


class StoredSkill(msgspec.Struct, frozen=True):
    """A record and its revision in the store."""

    name: str
    revision: int
    record: SkillRecord


class SkillInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as it is listed; `status` is `serving`, `unloaded`, or `refused` for a `reason`."""

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
    """The first characters of the sha256 of earlier versions, latest last."""


_LISTED_FIELDS: Final = ("description", "file", "version", "sha256", "permissions", "routes", "external")
"""The fields of a record that are listed as they are."""


class SkillRecords:
    """The records of dynamic skills in a store that several replicas may share."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen_revision: int | None = None
        """The revision that the served skills follow."""

    async def get(self, name: str) -> StoredSkill | None:
        """Return the record of a skill."""
        found = await self._store.executables.get(name)
        return None if found is None else StoredSkill(name, found.version, msgspec.convert(found.value, SkillRecord))

    async def list(self) -> list[StoredSkill]:
        """Return all readable records in the order of their names."""
        found: list[StoredSkill] = []
        after = ""
        while page := await self._store.executables.page(after, _PAGE_SIZE):
            for document in page:
                try:
                    record = msgspec.convert(document.value, SkillRecord)
                    found.append(StoredSkill(document.id, document.version, record))
                except msgspec.ValidationError as error:
                    _log.error("the record of the skill %s cannot be read: %s", document.id, error)
            after = page[-1].id
        return found

    async def read_revision(self) -> int:
        """Return how often any replica has changed a record."""
        return (await self._store.revisions()).get(schema.EXECUTABLES.name, 0)

    async def put(self, name: str, record: SkillRecord, revision: int) -> StoredSkill:
        """Write a record over the one with this revision, 0 if there is none; raises StaleVersion otherwise."""
        written = await self._store.executables.put(name, msgspec.to_builtins(record), revision)
        return StoredSkill(name, written.version, record)


class _ServedSkill(msgspec.Struct, frozen=True):
    """A skill that can be called."""

    stored: StoredSkill
    capability: Capability
    program: Program


class SkillSet:
    """All dynamic skills of one directory; a change that fails leaves everything as it was."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        directory: Path,
        *,
        permissions: Iterable[str] = (),
        core: Collection[str] = (),
        limits: SkillLimits | None = None,
        timeout: float | None = None,
        autoload: bool = True,
        sanitize: bool = False,
        read_resource: ReadResource | None = None,
        calls: Calls | None = None,
        temporary: Path | None = None,
        on_replaced: Callable[[str], None] = lambda _: None,
        on_followed: Callable[[SkillInfo], None] = lambda _: None,
    ) -> None:
        self.directory = directory
        self.permissions = frozenset((*PERMISSIONS, *permissions))
        self.core = frozenset(core)
        self.pool = Pool(limits or SkillLimits(), temporary)
        self._registry = registry
        self._records = SkillRecords(store)
        self._tools = DynamicTools(self.pool, store, calls or Calls(), read_resource, timeout, sanitize)
        self._autoload = autoload
        self._on_replaced = on_replaced
        self._on_followed = on_followed
        """Called with a skill that was loaded because its file is new or changed."""
        self._served: dict[str, _ServedSkill] = {}
        self._refused: dict[str, str] = {}
        """Skills on record that are not served, and why."""
        self._lock = asyncio.Lock()
        """Held while something changes; a reload of the configuration holds it from `hold` to `release` or `retire`."""
        self._is_retired = False
        self._leaving: frozenset[str] | None = None
        """While this set is prepared: the tools that its tools will replace. Nothing is registered until `begin`."""

    @property
    def rows(self) -> list[Capability]:
        """The tools of all served skills."""
        return [served.capability for served in self._served.values()]

    async def start(self) -> None:
        """Serve recorded skills whose files are unchanged, and with autoload new files."""
        if self.pool.temporary is not None:
            await asyncio.to_thread(remove_stale_scratch, self.pool.temporary)
        await self._serve_directory(())

    async def _serve_directory(self, refused: Collection[str]) -> None:
        async with self._change():
            # Read before the records, so that the next refresh sees what changes meanwhile.
            self._records.seen_revision = await self._records.read_revision()
            on_record = await self._records.list()
            for stored in on_record:
                if stored.record.enabled and stored.name not in self._served and stored.name not in refused:
                    await self._try(stored.name, self._restore(stored))
            if self._autoload:
                known = {stored.record.file for stored in on_record}
                for file in await asyncio.to_thread(files.list_files, self.directory):
                    if file not in known:
                        await self._try(file, self._load_new(file))

    async def refresh(self) -> None:
        """Follow what other replicas loaded and unloaded."""
        # A change here may take long (a trial import), and this is called on a timer: the next call catches up.
        if self._lock.locked():
            return
        with suppress(SkillRefused):  # the set was retired
            async with self._change():
                revision = await self._records.read_revision()
                if revision != self._records.seen_revision:
                    for stored in await self._records.list():
                        await self._follow_record(stored)
                    self._records.seen_revision = revision

    async def _follow_record(self, stored: StoredSkill) -> None:
        served, known = self._served.get(stored.name), self._refused.get(stored.name)
        if not stored.record.enabled:
            self._stop_serving(stored.name)
        elif served is None or served.stored.revision != stored.revision:
            try:
                await self._restore(stored)
            except SkillRefused as error:
                self._stop_serving(stored.name)
                self._refuse(stored.name, error, alert=known != error.message)

    async def close(self) -> None:
        """Take the tools out of the registry and end all processes."""
        if self._leaving is None:
            self._registry.remove(self.rows)
        self._served.clear()
        await self.pool.close()

    async def prepare(self, before: SkillSet | None, leaving: Collection[str]) -> None:
        """Prepare what `start` would serve, and what another set serves of the same directory; nothing is visible yet.

        `leaving` are the tools that will be replaced. The other set must be held until this one is committed or closed.
        """
        self._leaving = frozenset(leaving)
        if before is not None and before.directory == self.directory:
            # A skill that is served stays served, also if its file was changed since: that needs an explicit reload.
            for served in list(before._served.values()):
                record = served.stored.record
                source = files.make_source(served.stored.name, record.file, record.source)
                await self._try(served.stored.name, self._serve_source(served.stored, source))
        await self._serve_directory(tuple(self._refused))

    def begin(self) -> None:
        """The prepared tools are in the registry from now on."""
        self._leaving = None

    async def hold(self) -> None:
        """Block changes until `release` or `retire`."""
        await self._lock.acquire()

    def release(self) -> None:
        """Allow changes again after `hold`."""
        self._lock.release()

    def retire(self) -> None:
        """Serve and change nothing more; running calls finish on the version they began on."""
        for served in self._served.values():
            self.pool.retire(served.program)
        self._served.clear()
        self._is_retired = True
        self.release()

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        async with self._lock:
            if self._is_retired:  # the reload that it waited for has replaced this set by another
                raise SkillRefused("section_changed", "The section skills has just changed; try again.")
            yield

    async def load(self, file: str) -> SkillInfo:
        """Serve the skill in a file, named relative to the directory."""
        async with self._change():
            return await self._load(file)

    async def unload(self, name: str) -> None:
        """Stop serving a skill; its file and versions stay."""
        async with self._change():
            stored = await self._get_enabled(name)
            await self._records.put(name, msgspec.structs.replace(stored.record, enabled=False), stored.revision)
            self._stop_serving(name)

    async def reload(self, name: str) -> SkillInfo:
        """Serve what a skill's file holds now, whatever its version."""
        async with self._change():
            stored = await self._get_enabled(name)
            return await self._replace(await self._read(stored.record.file), stored)

    async def rollback(self, name: str, to: str | None = None) -> SkillInfo:
        """Serve the previous version, or one by its version or the start of its sha256, and restore it to the file."""
        async with self._change():
            stored = await self._get_enabled(name)
            source = _find_earlier(stored, to)
            # The file first, restored if anything fails: a skill is served only while its file is the one on record.
            async with _in_threads(files.replace_file(self.directory, source)):
                return await self._replace(source, stored)

    async def create(self, name: str) -> Path:
        """Write a file with a skill to start from; it is not loaded yet."""
        self._check_not_core(name)
        return await asyncio.to_thread(files.create_file, self.directory, name)

    async def list_skills(self) -> list[SkillInfo]:
        """Return every skill, core ones and new files that were refused too, in the order of their names."""
        tools = {name: self._registry.tools.get(tool_name(name)) for name in self.core if self._is_tool(name)}
        core = [
            SkillInfo(name=name, type="core", description=tool.definition.description or "")
            for name, tool in tools.items()
            if tool is not None
        ]
        on_record = await self._records.list()
        dynamic = [self._to_info(stored) for stored in on_record]
        known = {stored.record.file for stored in on_record}
        refused = [
            SkillInfo(name=file.removesuffix(files.SUFFIX), type="dynamic", status="refused", reason=reason, file=file)
            for file, reason in self._refused.items()
            if file.endswith(files.SUFFIX) and file not in known
        ]
        return sorted([*core, *dynamic, *refused], key=lambda info: info.name)

    async def read(self, name: str) -> tuple[SkillInfo, str]:
        """Return a dynamic skill, loaded or not, and the source that is on record."""
        stored = await self._records.get(name)
        if stored is None:
            raise self._not_found(name)
        return self._to_info(stored), stored.record.source

    async def watch(self, stop: asyncio.Event) -> None:
        """Reload skills whose files change, and with autoload load new ones, until `stop` is set."""

        def list_watched() -> list[Path]:
            root = self.directory.resolve()
            return [root, *(root / file for file in files.list_files(root))]

        async for changed in changes(list_watched, stop):
            for path in sorted(changed):
                if path.suffix == files.SUFFIX and path.exists():
                    await self._follow_file(files.relative_name(self.directory, path))

    async def _follow_file(self, file: str) -> None:
        async with self._change():
            stored = await self._records.get(Path(file).stem)
            if stored is not None and stored.record.file == file:
                if stored.record.enabled:
                    await self._try(stored.name, self._reload_changed(stored))
            elif self._autoload:
                await self._try(file, self._load_new(file))

    async def _reload_changed(self, stored: StoredSkill) -> None:
        source = await self._read(stored.record.file)
        if source.sha256 != stored.record.sha256 or stored.name not in self._served:
            self._on_followed(await self._replace(source, stored))

    async def _try(self, name: str, change: Awaitable[object]) -> None:
        """Make a change that may be refused; a refusal is an alert, and served skills stay served."""
        try:
            await change
        except SkillRefused as error:
            self._refuse(name, error)

    def _refuse(self, name: str, error: SkillRefused, *, alert: bool = True) -> None:
        self._refused[name] = error.message
        if alert:
            _log.warning("The skill %s is refused (%s): %s", name, error.code, error.message)

    async def _restore(self, stored: StoredSkill) -> None:
        """Serve a recorded skill if its file is unchanged."""
        source = await self._read(stored.record.file)
        if source.sha256 != stored.record.sha256:
            raise SkillRefused(
                "checksum_mismatch",
                f"{source.file} changed since it was loaded; look at it, then reload the skill {stored.name}.",
            )
        self._check_free(stored.name)
        await self._serve_source(stored, source)

    async def _serve_source(self, stored: StoredSkill, source: Source) -> None:
        declaration = await asyncio.to_thread(check_source, source, self.permissions)
        self._serve(stored, declaration, _make_program(source, declaration, self.directory))

    async def _load(self, file: str, *, is_found: bool = False) -> SkillInfo:
        """Serve a file; one that was found, not named by an operator, never takes the place of an unloaded skill."""
        source = await self._read(file)
        self._check_free(source.name)
        on_record = await self._records.list()
        stored = next((one for one in on_record if one.name == source.name), None)
        if stored is not None and stored.record.file != source.file and (stored.record.enabled or is_found):
            raise SkillRefused(
                "name_taken", f"The skill {source.name} is in {stored.record.file}; unload it, or rename {source.file}."
            )
        # Agents and people choose by name: one that can be taken for another would be called in its place.
        others = [*self.core, *(one.name for one in on_record if one.record.enabled)]
        alike = None if stored is not None else files.find_alike(source.name, others)
        if alike is not None:
            raise SkillRefused(
                "name_taken", f"The name {source.name} looks like that of the skill {alike}; rename {source.file}."
            )
        return await self._replace(source, stored, is_forced=source.name not in self._served)

    async def _load_new(self, file: str) -> None:
        """Serve a new file; if another replica on the same store was first, serve what it recorded."""
        try:
            self._on_followed(await self._load(file, is_found=True))
        except StaleVersion:
            stored = await self._records.get(Path(file).stem)
            if stored is not None and stored.record.enabled:
                await self._restore(stored)

    async def _replace(self, source: Source, stored: StoredSkill | None, *, is_forced: bool = True) -> SkillInfo:
        """Serve a source under its name, in place of an earlier one; the order is check, try, record, serve."""
        declaration = await asyncio.to_thread(check_source, source, self.permissions)
        if not is_forced and stored is not None and (declaration.version or "") == stored.record.version:
            version = stored.record.version
            loaded = f"in version {version}; give it another" if version else "without a version; give it one"
            raise SkillRefused("same_version", f"The skill {source.name} is loaded already, {loaded}, or reload it.")
        program = _make_program(source, declaration, self.directory)
        # It is imported in its own process before anything is written, so that a broken skill changes nothing. The
        # record comes before the tool: what is served is what a restart or another replica would serve.
        process = await _try_import(source, program, self.pool)
        try:
            record = _make_record(source, declaration, None if stored is None else stored.record)
            written = await self._records.put(source.name, record, 0 if stored is None else stored.revision)
            self._serve(written, declaration, program)
        except BaseException:
            self.pool.discard(process)
            raise
        self.pool.adopt(process)
        return self._to_info(written)

    def _serve(self, stored: StoredSkill, declaration: Declaration, program: Program) -> None:
        """Replace the tool in one step; running calls finish on the version they began on."""
        tool = self._tools.build(program, declaration, stored.revision)
        old = self._served.get(stored.name)
        if self._leaving is None:
            self._registry.replace([] if old is None else [old.capability], [tool])
        self._served[stored.name] = _ServedSkill(stored, tool, program)
        self._on_replaced(tool.id)  # the failures of the old version must not keep the new one from being called
        self._refused.pop(stored.name, None)
        self._refused.pop(stored.record.file, None)
        if old is not None:
            self.pool.retire(old.program)

    def _stop_serving(self, name: str) -> None:
        self._refused.pop(name, None)
        served = self._served.pop(name, None)
        if served is not None:
            self._registry.remove([served.capability])
            self.pool.retire(served.program)
            self._on_replaced(served.capability.id)

    async def _read(self, file: str) -> Source:
        return await asyncio.to_thread(files.read_source, self.directory, file)

    async def _get_enabled(self, name: str) -> StoredSkill:
        """Return the record of a skill that is loaded, or was refused at the start."""
        if name in self.core:
            raise SkillRefused("cannot_unload_core", f"{name} is a core skill; only dynamic skills can be changed.")
        stored = await self._records.get(name)
        if stored is None:
            raise self._not_found(name)
        if not stored.record.enabled:
            raise SkillNotFound(name, reason=f"The skill {name} is not loaded; load its file {stored.record.file}.")
        return stored

    def _not_found(self, name: str) -> SkillNotFound:
        """What to say of a name without a record; new files that were refused have none, and are known by file."""
        file = f"{name.removesuffix(files.SUFFIX)}{files.SUFFIX}"
        if refused := self._refused.get(file):
            return SkillNotFound(name, reason=f"{file} was not loaded: {refused.removeprefix(f'{file}: ')}")
        return SkillNotFound(name, (*self._served, *(one for one in self._refused if not one.endswith(files.SUFFIX))))

    def _check_not_core(self, name: str) -> None:
        if name in self.core:
            raise SkillRefused("name_conflicts_with_core", f"There is a core skill {name}; choose another name.")

    def _check_free(self, name: str) -> None:
        """Refuse a name of a core skill, or of a tool from another source."""
        self._check_not_core(name)
        if name not in self._served and self._is_tool(name):
            raise SkillRefused("name_conflicts_with_core", f"There is a tool {tool_name(name)}; choose another name.")

    def _is_tool(self, name: str) -> bool:
        tool = tool_name(name)
        return tool in self._registry.tools and tool not in (self._leaving or ())

    def _to_info(self, stored: StoredSkill) -> SkillInfo:
        record = stored.record
        status = "serving" if stored.name in self._served else "refused" if record.enabled else "unloaded"
        return SkillInfo(
            name=stored.name,
            type="dynamic",
            status=status,
            reason=self._refused.get(stored.name, "") if status == "refused" else "",
            revision=stored.revision,
            previous=tuple(version.sha256[:12] for version in record.previous),
            **{name: getattr(record, name) for name in _LISTED_FIELDS},
        )


@asynccontextmanager
async def _in_threads(manager: AbstractContextManager[None]) -> AsyncIterator[None]:
    """Enter and leave a context manager in threads; what it has begun is undone also if the task is cancelled."""
    stack = ExitStack()
    try:
        await _run_to_end(stack.enter_context, manager)
        yield
    except BaseException as error:
        await _run_to_end(stack.__exit__, type(error), error, error.__traceback__)
        raise
    await _run_to_end(stack.close)


async def _run_to_end(work: Callable[..., object], *args: object) -> None:
    """Run a function in a thread, and wait for its end before a cancellation counts: a thread cannot be stopped."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _try_import(source: Source, program: Program, pool: Pool) -> Process:
    """Start a process that imports the skill and is ready for a call; any fault is SkillRefused."""
    try:
        process = await Process.start(program, pool.limits, pool.temporary)
    except ImportFailed as error:
        failed = error.failed
        if failed.kind == "MissingRun":
            refusal = SkillRefused("missing_run", f"{source.file} cannot be run: {failed.message}.")
        elif failed.line is not None:
            refusal = SkillRefused("compilation_error", f"{source.file}, line {failed.line}: {failed.message}.")
        else:
            message = f"{source.file} cannot be imported: {failed.kind}: {failed.message}."
            refusal = SkillRefused("import_failed", message)
        raise refusal from None
    except ProcessEnded as error:
        raise SkillRefused("import_failed", f"{source.file} cannot be imported: {error}.") from None
    try:
        await asyncio.to_thread(compare_declaration, source, process.ready)
    except BaseException:
        process.kill()
        raise
    return process


def _make_program(source: Source, declaration: Declaration, directory: Path) -> Program:
    folder = str(directory.resolve())
    permissions, is_external = declaration.permissions or (), bool(declaration.external)
    return Program(source.name, source.file, source.text.encode(), folder, permissions, is_external)


def _make_record(source: Source, declaration: Declaration, before: SkillRecord | None) -> SkillRecord:
    """Return the record of a skill that is served from now on, with the versions before it."""
    previous: tuple[SkillVersion, ...] = ()
    if before is not None:
        latest = SkillVersion(before.sha256, before.version, before.source)
        previous = tuple(one for one in (*before.previous, latest) if one.sha256 != source.sha256)[-MAX_VERSIONS:]
    return SkillRecord(
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


def _find_earlier(stored: StoredSkill, to: str | None) -> Source:
    """Return the source of an earlier version."""
    fitting = [
        one
        for one in stored.record.previous
        if to is None or one.version == to or (len(to) >= _MIN_SHA256_PREFIX and one.sha256.startswith(to))
    ]
    if not fitting:
        wanted = "earlier version" if to is None else f"earlier version {to[:80]}"
        raise SkillRefused("no_earlier_version", f"The skill {stored.name} has no {wanted}.")
    return files.make_source(stored.name, stored.record.file, fitting[-1].source)
