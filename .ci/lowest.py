"""Print the requirements of pyproject.toml, with those of the extras that are given, at their lowest versions."""

from __future__ import annotations

import sys
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement


def main() -> None:
    """Write one `name==version` per line, for `pip install --requirement`."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][name] for name in sys.argv[1:])
    for requirement in map(Requirement, chain(project["dependencies"], *extras)):
        lowest = [part.version for part in requirement.specifier if part.operator in (">=", "==")]
        if len(lowest) != 1:
            sys.exit(f"{requirement} has no single lower bound.")
        marker = f"; {requirement.marker}" if requirement.marker else ""
        sys.stdout.write(f"{requirement.name}=={lowest[0]}{marker}\n")


if __name__ == "__main__":
    main()
