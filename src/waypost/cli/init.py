"""`waypost init`"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from waypost.errors import WaypostError

_CONFIG: Final = """\
# What this hub offers; see `waypost check` and `waypost schema`.
version: "1"
server:
  name: {name}
  surface: full
toolkits:
  - ./tools.py
prompts:
  summarize:
    description: Summarise a text in a few sentences
    arguments:
      - {{name: text, description: The text, required: true}}
      - {{name: sentences, description: How many sentences}}
    template: |
      Summarise the following text in {{{{ sentences or 3 }}}} sentences.

      {{{{ text }}}}
"""

_TOOLS: Final = '''\
"""Tools of this hub: every function marked with @tool becomes one."""

from datetime import UTC, datetime

from waypost import Toolkit, tool


class Basics(Toolkit, category="Basics"):
    """A few small tools to start from."""

    @tool(description="Add two numbers")
    async def add(self, a: float, b: float) -> float:
        return a + b

    @tool(description="The time on the server, in UTC")
    async def server_time(self) -> str:
        return datetime.now(UTC).isoformat(timespec="seconds")
'''


def register(commands: Any) -> None:
    """Add the command."""
    init = commands.add_parser(
        "init",
        help="write a small working hub to start from",
        description="Write a configuration, a toolkit and a client entry into a directory.",
        epilog="example: waypost init my-hub",
    )
    init.add_argument("directory", nargs="?", default=".", metavar="DIR", help="where to write (default: here)")
    init.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Write the files; nothing that exists is overwritten."""
    folder = Path(given.directory).resolve()
    name = folder.name.lower().replace(" ", "-") or "waypost"
    command, *words = _myself()
    arguments = [*words, "serve", str(folder / "waypost.yaml"), "--stdio"]
    client = {"mcpServers": {name: {"command": command, "args": arguments}}}
    files = {
        folder / "waypost.yaml": _CONFIG.format(name=json.dumps(name)),
        folder / "tools.py": _TOOLS,
        folder / "mcp.json": json.dumps(client, indent=2) + "\n",
    }
    taken = [file.name for file in files if file.exists()]
    if taken:
        raise WaypostError(f"{folder} has {', '.join(taken)} already; choose another directory.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            file.write_text(text)
    except OSError as error:
        raise WaypostError(f"{folder} cannot be written to: {error.strerror}.") from None
    config = shlex.quote(str(folder / "waypost.yaml"))
    sys.stdout.write(
        f"Wrote waypost.yaml, tools.py and mcp.json to {folder}.\n"
        f'Try it:      waypost call {config} add \'{{"a": 1, "b": 2}}\'\n'
        f"Serve it:    waypost serve {config}\n"
        f"Connect it:  paste mcp.json into your client's configuration.\n"
    )
    return 0


def _myself() -> list[str]:
    """How anything starts this command: by its whole path, because clients do not see the environment of a shell."""
    script = Path(sys.executable).with_name("waypost")
    return [str(script)] if script.exists() else [sys.executable, "-m", "waypost"]
