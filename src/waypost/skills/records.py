"""Skills as the store keeps them, and as they are listed."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec

from waypost.skills.declarations import Declaration
from waypost.skills.files import Source
from waypost.stores.records import Documents

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
