"""`waypost init`: write a small working hub to start from."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from pathlib import Path
from typing import Final

from waypost.cli.command import Argument, Command, Output
from waypost.cli.install import find_command
from waypost.errors import WaypostError

_CONFIG: Final = """\
# The configuration of this hub; see `waypost check` and `waypost schema`.
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


def run(args: Namespace) -> Output:
    """Write the files; nothing that exists is overwritten."""
    folder = Path(args.directory).resolve()
    name = folder.name.lower().replace(" ", "-") or "waypost"
    command, *words = find_command()
    arguments = [*words, "serve", str(folder / "waypost.yaml"), "--stdio"]
    client = {"mcpServers": {name: {"command": command, "args": arguments}}}
    files = {
        folder / "waypost.yaml": _CONFIG.format(name=json.dumps(name)),
        folder / "tools.py": _TOOLS,
        folder / "mcp.json": json.dumps(client, indent=2) + "\n",
    }
    taken = [file.name for file in files if file.exists()]
    if taken:
        raise WaypostError(f"{folder} already has {', '.join(taken)}; choose another directory.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            file.write_text(text)
    except OSError as error:
        raise WaypostError(f"{folder} cannot be written to: {error.strerror}.") from None
    config = shlex.quote(str(folder / "waypost.yaml"))
    return Output(
        text=f"Wrote waypost.yaml, tools.py and mcp.json to {folder}.\n"
        f"Try it:      waypost call {config} add a=1 b=2\n"
        f"Serve it:    waypost serve {config}\n"
        f"Connect it:  waypost install claude-code {config} (or cursor, vscode, codex, ...)\n"
    )


COMMAND: Final = Command(
    run,
    "Write a configuration, a toolkit and a client entry into a directory.",
    "waypost init my-hub",
    Argument("directory", nargs="?", default=".", metavar="DIR", help="where to write (default: here)"),
)
