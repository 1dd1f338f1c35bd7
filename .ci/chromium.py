"""Install Debian's Chromium for the browser tests, where there is none and this user may."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    if any(map(shutil.which, NAMES)) or shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"],
    ):
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, timeout=600)


if __name__ == "__main__":
    main()
