"""The executor that runs a program of this machine."""

from __future__ import annotations

from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import DefinitionError
from waypost.workflows.executors import connection_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.executors.processes import Program


class Cli:
    """A program by its name, or that of a connection."""

    kind: Final = "cli"
    evidence: Final = "cli_output"
    limit: Final = None

    def __init__(self, model: models.Cli, surroundings: Surroundings, roots: frozenset[str]) -> None:
        if (model.connection is None) == (model.command is None):
            raise DefinitionError("a cli executor has a connection or a command, and not both")
        self._model = model
        self._surroundings = surroundings
        self._program = Program(model, roots)

    async def run(self, run: Run) -> Any:
        """`{exitCode, success, stdout, stderr, json}`."""
        if self._model.connection is None:
            return await self._program.run(run, [self._model.command or ""])
        connection = connection_of(self._surroundings, self._model.connection, models.CliConnection)
        return await self._program.run(run, [connection.command], connection)
