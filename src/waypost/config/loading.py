"""Loading a configuration, or finding out what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.config import references
from waypost.config.checking import build, plain
from waypost.config.executors import RestConnection
from waypost.config.includes import gather
from waypost.config.rules import check_bus, check_key_set, check_skills, check_timeouts, check_toolkits
from waypost.config.secrets import secrets
from waypost.config.sound import LeftOut, Sound
from waypost.config.templates import check_prompts
from waypost.errors import ConfigError
from waypost.settings import Settings, ToolkitUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node


_SECTIONS: Final = tuple(one.encode_name for one in msgspec.structs.fields(Settings))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, where it came from, and what to watch for changes: its files, toolkits and include folders."""

    config: Settings
    path: Path
    files: tuple[Path, ...]
    warnings: tuple[Finding, ...]
    watched: tuple[Path, ...]
    root: Node
    left_out: LeftOut = field(default_factory=LeftOut)
    places: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Where entries of lists are in the file, of which some were left out."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no text for others may hold."""
        return secrets(self.root)

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """A finding about the key at `path`, for mistakes that only show when the configuration is used."""
        if len(path) > 1 and isinstance(path[1], int) and path[0] in self.places:
            path = (path[0], self.places[str(path[0])][path[1]], *path[2:])
        return (self.root.at(*path) or self.root).finding(path, message, code)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a configuration file; one that has errors raises `ConfigError` with all findings."""
    loaded, findings = examine(path, environ)
    refuse(findings)
    assert loaded is not None
    return loaded


def refuse(findings: Sequence[Finding]) -> None:
    """Raise a `ConfigError` with all findings if any of them is an error."""
    errors = [found for found in findings if found.severity == "error"]
    if errors:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ConfigError(f"{errors[0]}{others}", findings)


def check(path: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that is wrong with a configuration file, errors and warnings, file by file and line by line."""
    return examine(path, environ)[1]


def examine(path: Path, environ: Mapping[str, str] | None = None) -> tuple[Loaded | None, list[Finding]]:
    """As much of a configuration file as is sound, and everything that is wrong with it."""
    findings: list[Finding] = []
    gathered = gather(path, os.environ if environ is None else environ, findings)
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
    watched = (*gathered.files, *_toolkit_files(config), *_documents(config), *gathered.folders)
    loaded = Loaded(
        *(config, gathered.files[0], gathered.files, tuple(findings), tuple(dict.fromkeys(watched)), root),
        *(sound.left_out, sound.places),
    )
    return loaded, findings


def _built(root: Node, sound: Sound, findings: list[Finding]) -> Settings | None:
    """The configuration without what is wrong in it, which some structs only tell when they are made."""
    sound.leave_out(findings, _SECTIONS)
    while True:
        told, tried = len(findings), dict(sound.data)
        config: Settings | None = build(root, sound.data, Settings, findings)
        if config is not None:
            return config
        sound.leave_out(findings[told:], _SECTIONS)
        if sound.data == tried:
            return None


def _documents(config: Settings) -> list[Path]:
    """The documents that say what the APIs of connections can do."""
    apis = (one for one in config.connections.values() if isinstance(one, RestConnection))
    return [Path(api.openapi) for api in apis if api.openapi is not None]


def _toolkit_files(config: Settings) -> list[Path]:
    uses = [entry.use if isinstance(entry, ToolkitUse) else entry for entry in config.toolkits]
    return [file for use in uses if (file := references.file_of(use))]
