"""Loading a configuration file, at the start and again while the hub runs."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.config import rules
from waypost.config.checks import LeftOut, Sound, build, plain
from waypost.config.environment import secrets
from waypost.config.findings import finding
from waypost.config.includes import Source, gather
from waypost.config.models import RestConnection
from waypost.config.protection import find_losses
from waypost.config.rules import check_bus, check_key_set, check_prompts, check_skills, check_timeouts, check_toolkits
from waypost.config.snapshots import Snapshot
from waypost.errors import ConfigError
from waypost.settings import Settings, ToolkitUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node


SETTLE_S: Final = 0.4
"""How long files stay unchanged before they are read again as complete."""
UNFINISHED_SETTLE_S: Final = 2.0
"""The same where one of them looks half written: a disk that is full or busy may leave it so for a while."""
MAX_SETTLE_S: Final = 10.0
_LOOK_S: Final = 0.1

_SECTIONS: Final = tuple(one.encode_name for one in msgspec.structs.fields(Settings))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, the files it came from, and the paths to watch for changes.

    `watched` holds the files, those of toolkits and OpenAPI documents, and the folders of include patterns.
    """

    config: Settings
    path: Path
    files: tuple[Path, ...]
    warnings: tuple[Finding, ...]
    watched: tuple[Path, ...]
    root: Node
    left_out: LeftOut = field(default_factory=LeftOut)
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The positions in the file of the entries of lists from which some were left out."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """The files by the name that nodes and findings have for them."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    """What was read, to tell later whether the disk still holds it."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to redact in errors, logs and listings."""
        return secrets(self.root)

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """Make a finding about the key at `path`, for mistakes that only show when the configuration is used."""
        if len(path) > 1 and isinstance(path[1], int) and path[0] in self.places:
            path = (path[0], self.places[str(path[0])][path[1]], *path[2:])
        return (self.root.at(*path) or self.root).finding(path, message, code)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a configuration file; one that has errors raises `ConfigError` with all findings."""
    loaded, findings = examine(path, environ)
    refuse(findings)
    assert loaded is not None
    return loaded


async def reload(before: Loaded) -> Loaded:
    """Load the files of a running configuration again, once nothing writes to them.

    Raises `ConfigError` for everything that `load` refuses, for files that were emptied or do not come to rest, and
    where `auth` or policies would be lost although no file says so.
    """
    loaded, findings = await _examine_at_rest(before)
    refuse(findings)
    assert loaded is not None
    refuse(find_losses(before, loaded))
    return loaded


async def _examine_at_rest(before: Loaded) -> tuple[Loaded | None, list[Finding]]:
    give_up = time.monotonic() + MAX_SETTLE_S
    while time.monotonic() < give_up:
        snapshot = Snapshot()
        examined = await asyncio.to_thread(examine, before.path, None, snapshot)
        is_unfinished = await asyncio.to_thread(snapshot.looks_unfinished, before.snapshot)
        if await _stays_current(snapshot, UNFINISHED_SETTLE_S if is_unfinished else SETTLE_S):
            return examined
    message = f"the files have kept changing for {MAX_SETTLE_S:g} seconds; they are read once nothing writes to them"
    return None, [finding(str(before.path), 1, (), message, "CFG035")]


async def _stays_current(snapshot: Snapshot, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _LOOK_S))
        if not await asyncio.to_thread(snapshot.is_current):
            return False
    return True


def refuse(findings: Sequence[Finding]) -> None:
    """Raise a `ConfigError` with all findings if any of them is an error."""
    errors = [found for found in findings if found.severity == "error"]
    if errors:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ConfigError(f"{errors[0]}{others}", findings)


def check(path: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Find everything that is wrong with a configuration file, errors and warnings, by file and line."""
    return examine(path, environ)[1]


def examine(
    path: Path, environ: Mapping[str, str] | None = None, snapshot: Snapshot | None = None
) -> tuple[Loaded | None, list[Finding]]:
    """Load as much of a configuration file as is valid, and find everything that is wrong with it.

    Files are read into the snapshot, those of toolkits and OpenAPI documents too, although nothing here parses them.
    """
    findings: list[Finding] = []
    snapshot = Snapshot() if snapshot is None else snapshot
    gathered = gather(path, os.environ if environ is None else environ, snapshot, findings)
    root = gathered.root
    data = plain(root, Settings, findings)
    check_bus(root, findings)
    check_key_set(root, findings)
    check_skills(root, findings)
    check_toolkits(root, findings)
    check_prompts(root, findings)
    if isinstance(data, dict):
        check_timeouts(root, data, findings)
    sound = Sound(data if isinstance(data, dict) else {})
    config = _built(root, sound, findings)
    findings.sort(key=lambda found: (found.file != str(path), found.file, found.line))
    if config is None:
        return None, findings
    files = tuple(source.path for source in gathered.sources.values())
    others = (*_toolkit_files(config), *_documents(config))
    for other in others:
        snapshot.read(other)
    watched = tuple(dict.fromkeys((*files, *others, *gathered.folders)))
    loaded = Loaded(
        *(config, files[0], files, tuple(findings), watched, root),
        *(sound.left_out, sound.places, gathered.sources, snapshot),
    )
    return loaded, findings


def _built(root: Node, sound: Sound, findings: list[Finding]) -> Settings | None:
    """Build the configuration without what is wrong in it; some mistakes only show when a struct is made."""
    sound.leave_out(findings, _SECTIONS)
    while True:
        known, tried = len(findings), dict(sound.data)
        config: Settings | None = build(root, sound.data, Settings, findings)
        if config is not None:
            return config
        sound.leave_out(findings[known:], _SECTIONS)
        if sound.data == tried:
            return None


def _documents(config: Settings) -> list[Path]:
    """The OpenAPI documents of connections."""
    apis = (one for one in config.connections.values() if isinstance(one, RestConnection))
    return [Path(api.openapi) for api in apis if api.openapi is not None]


def _toolkit_files(config: Settings) -> list[Path]:
    uses = [entry.use if isinstance(entry, ToolkitUse) else entry for entry in config.toolkits]
    return [file for use in uses if (file := rules.file_of(use))]
