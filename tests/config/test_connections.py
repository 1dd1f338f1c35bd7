from __future__ import annotations

import os
from typing import get_args, get_type_hints

import pytest

from tests.config.conftest import Folder
from waypost.config.models import CliConnection, McpConnection
from waypost.wire.versions import ALL
from waypost.workflows.executors.cli import Cli


def test_all_versions_can_be_configured(folder: Folder) -> None:
    offered = get_type_hints(McpConnection)["version"]
    assert set(get_args(get_args(offered)[0])) == set(ALL)
    for version in ALL:
        loaded = folder.load(f"connections: {{up: {{kind: mcp, command: x, version: {version}}}}}")
        connection = loaded.config.connections["up"]
        assert isinstance(connection, McpConnection)
        assert connection.version == version


def test_an_unknown_version_is_an_error(folder: Folder) -> None:
    found = folder.only("connections:\n  up:\n    kind: mcp\n    command: x\n    version: 2025-11-26\n")
    assert (found.code, found.line, found.key) == ("CFG013", 5, "connections.up.version")
    assert "2025-11-25" in found.message


@pytest.mark.parametrize("kind", ["cli", "mcp"])
def test_a_program_with_a_slash_in_its_name_is_relative_to_the_file_it_is_written_in(folder: Folder, kind: str) -> None:
    folder.write(
        "team/tools.yaml", f"connections: {{own: {{kind: {kind}, command: ./run.sh, workingDirectory: deep}}}}"
    )
    folder.write("team/flow.yaml", "capabilities: {build: {executor: {kind: cli, command: ../run.sh}}}")
    config = folder.load("include: [team/*.yaml]").config
    own, build = config.connections["own"], config.capabilities["build"].executor
    assert isinstance(own, CliConnection | McpConnection)
    assert isinstance(build, Cli)
    assert own.command is not None
    assert build.command is not None
    assert os.path.normpath(own.command) == str(folder.path / "team" / "run.sh")
    assert os.path.normpath(build.command) == str(folder.path / "run.sh")


@pytest.mark.parametrize("command", ["make", "/bin/sh"])
def test_an_absolute_program_or_one_on_the_path_is_not_changed(folder: Folder, command: str) -> None:
    connection = folder.load(f"connections: {{build: {{kind: cli, command: {command}}}}}").config.connections["build"]
    assert isinstance(connection, CliConnection)
    assert connection.command == command
