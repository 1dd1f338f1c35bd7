"""Loading a configuration, or finding out what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from waypost.config import references
from waypost.config.checking import build, plain
from waypost.config.executors import RestConnection
from waypost.config.includes import Gathered, gather
from waypost.config.models import Config, ToolkitUse
from waypost.config.rules import check_bus, check_timeouts, check_toolkits
from waypost.config.templates import check_prompts
from waypost.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, where it came from, and what to watch for changes: its files, toolkits and include folders."""

    config: Config
    path: Path
    files: tuple[Path, ...]
    warnings: tuple[Finding, ...]
    watched: tuple[Path, ...]
    root: Node

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """A finding about the key at `path`, for mistakes that only show when the configuration is used."""
        return (self.root.at(*path) or self.root).finding(path, message, code)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a configuration file; one that has errors raises `ConfigError` with all findings."""
    config, gathered, findings = _examine(path, environ)
    errors = [found for found in findings if found.severity == "error"]
    if errors or config is None:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ConfigError(f"{errors[0]}{others}", findings)
    watched = (*gathered.files, *_toolkit_files(config), *_documents(config), *gathered.folders)
    return Loaded(
        config, gathered.files[0], gathered.files, tuple(findings), tuple(dict.fromkeys(watched)), gathered.root
    )


def check(path: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that is wrong with a configuration file, errors and warnings, file by file and line by line."""
    return _examine(path, environ)[2]


def _examine(path: Path, environ: Mapping[str, str] | None) -> tuple[Config | None, Gathered, list[Finding]]:
    findings: list[Finding] = []
    gathered = gather(path, os.environ if environ is None else environ, findings)
    root = gathered.root
    data = plain(root, Config, findings)
    check_bus(root, findings)
    check_toolkits(root, findings)
    check_prompts(root, findings)
    if isinstance(data, dict):
        check_timeouts(root, data, findings)
    config: Config | None = None
    if all(found.severity == "warning" for found in findings):
        config = build(root, data, Config, findings)
    findings.sort(key=lambda found: (found.file != str(path), found.file, found.line))
    return config, gathered, findings


def _documents(config: Config) -> list[Path]:
    """The documents that say what the APIs of connections can do."""
    apis = (one for one in config.connections.values() if isinstance(one, RestConnection))
    return [Path(api.openapi) for api in apis if api.openapi is not None]


def _toolkit_files(config: Config) -> list[Path]:
    uses = [entry.use if isinstance(entry, ToolkitUse) else entry for entry in config.toolkits]
    return [file for use in uses if (file := references.file_of(use))]
