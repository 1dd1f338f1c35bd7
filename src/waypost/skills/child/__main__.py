"""Starts a skill's process: `python -I <this file> <number of its socket>`.

The packages above this folder stand as empty shells while it loads, for the hub itself takes long and is not needed.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

_ABOVE = ("waypost.skills.child", "waypost.skills", "waypost")


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in _ABOVE:
        shell = ModuleType(name)
        shell.__path__ = [folder]
        sys.modules[name] = shell
        folder = os.path.dirname(folder)
    from waypost.skills.child.program import main

    for name in _ABOVE:
        del sys.modules[name]  # a skill that imports waypost gets the real one
    main(int(sys.argv.pop()))


_start()
