"""Skills as a list shows them."""

from __future__ import annotations

import msgspec

from waypost.skills.records import Kept


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
