"""uvicorn without its command line, which `import uvicorn` loads although a server never uses it.

`uvicorn.main` imports click, multiprocessing and the reloaders with watchfiles: 3 MB, and a tenth of the instructions
to the first answer. A stand-in takes its place while uvicorn's package is imported; `uvicorn.run` and `uvicorn.main`
load the real module when they are called, and so does everything that imports it by name. A uvicorn that was imported
before, or that expects something else of that module, is left as it is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

_COMMAND_LINE: Final = "uvicorn.main"


class _StandIn(ModuleType):
    """The names of `uvicorn.main` that uvicorn's package takes from it."""

    @property
    def Server(self) -> Any:  # uvicorn's name
        return import_module("uvicorn.server").Server

    @staticmethod
    def run(*args: Any, **more: Any) -> None:
        """`uvicorn.run`"""
        _restore().run(*args, **more)

    @staticmethod
    def main(*args: Any, **more: Any) -> Any:
        """`uvicorn.main`, the command."""
        return _restore().main(*args, **more)


def _restore() -> Any:
    """The real module, whose names the package has from now on."""
    package, real = sys.modules["uvicorn"], import_module(_COMMAND_LINE)
    vars(package).update(run=real.run, main=real.main)
    return real


def import_uvicorn() -> None:
    """Import uvicorn's package, without its command line if that can be left out."""
    if "uvicorn" in sys.modules:
        return
    sys.modules[_COMMAND_LINE] = _StandIn(_COMMAND_LINE)
    try:
        import_module("uvicorn")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "uvicorn"]:
            del sys.modules[name]
        import_module("uvicorn")
    finally:
        if isinstance(sys.modules.get(_COMMAND_LINE), _StandIn):
            del sys.modules[_COMMAND_LINE]


import_uvicorn()

import uvicorn as uvicorn  # noqa: E402  # after the stand-in
