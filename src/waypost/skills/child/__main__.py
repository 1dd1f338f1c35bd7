"""Starts a skill's process: `python -I <this file> <file descriptor of its socket>`.

The packages above this folder are replaced by empty ones while it loads: importing the hub is slow and not needed.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

_PACKAGES = ("waypost.skills.child", "waypost.skills", "waypost")


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in _PACKAGES:
        empty = ModuleType(name)
        empty.__path__ = [folder]
        sys.modules[name] = empty
        folder = os.path.dirname(folder)
    from waypost.skills.child.program import main

    for name in _PACKAGES:
        del sys.modules[name]  # a skill that imports waypost gets the real one
    main(int(sys.argv.pop()))


_start()
