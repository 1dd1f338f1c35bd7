"""Commands on a file work while a hub of the same file runs: they open no port and do not change its store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import SERVER, TOOLS
from tests.cli.shell import Serving, serving, waypost
from tests.ports import free_port

CONFIG = """\
version: "1"
server: {{name: desk, surface: full, port: {port}}}
workers: {{port: {workers}}}
toolkits: [./tools.py]
prompts: {{greet: {{template: Hello.}}}}
workflows:
  review:
    initialState: draft
    states:
      draft: {{transitions: {{done: {{target: end, executor: {{kind: noop}}}}}}}}
      end: {{terminal: true}}
"""
COMMANDS = [
    ["list", "waypost.yaml"],
    ["list", "waypost.yaml", "--catalog"],
    ["search", "waypost.yaml", "add"],
    ["describe", "waypost.yaml", "add"],
    ["call", "waypost.yaml", "add", "a=1", "b=2"],
    ["read", "server.py:hub", "docs://readme"],
    ["check", "waypost.yaml"],
    ["doctor", "waypost.yaml"],
    ["graph", "waypost.yaml", "review"],
    ["simulate", "waypost.yaml", "review", "--walks", "5"],
    ["store", "check", "waypost.yaml"],
    ["store", "migrate", "waypost.yaml"],
    ["store", "backup", "waypost.yaml", "--to", "copy.db"],
    ["store", "vacuum", "waypost.yaml"],
    ["audit", "verify", "waypost.yaml"],
    ["audit", "tail"],
    ["keys", "list"],
    ["workers", "list"],
    ["runs", "list"],
    ["install", "cursor", "waypost.yaml", "--scope", "project", "--dry-run"],
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    """A hub with a port for workers, and its folder."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "waypost.yaml").write_text(CONFIG.format(port=free_port(), workers=free_port()))
    (folder / "tools.py").write_text(TOOLS)
    (folder / "server.py").write_text(SERVER)
    with serving(cwd=folder) as running:
        running.wait_for(" is ready at ")
        yield running, folder


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_works_while_a_hub_of_the_same_file_runs(words: list[str], hub: tuple[Serving, Path]) -> None:
    running, folder = hub

    done = waypost(*words, cwd=folder)

    assert (done.returncode, "Cannot listen" in done.stderr) == (0, False), done.stderr
    assert running.process.poll() is None
