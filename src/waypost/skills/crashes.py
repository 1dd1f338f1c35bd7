"""What went wrong in a skill's process, as exceptions of the hub."""

from __future__ import annotations

import logging
import signal
from functools import lru_cache
from typing import Final

from waypost.errors import ToolError
from waypost.skills.child.messages import Failed

_log: Final = logging.getLogger(__name__)


class ProcessEnded(RuntimeError):
    """The skill's process ended before it answered."""


class SkillCrash(RuntimeError):
    """A skill raised something; subclasses bear the name of what it was."""

    is_refusal = False
    """Whether the skill was not allowed something: its caller's affair, and no fault that others should feel."""


def crash(name: str, failed: Failed) -> Exception:
    """The exception that stands for one in a skill's process, whose traceback goes to the log."""
    if failed.told:
        return ToolError(failed.message)
    _log.error("skill %s failed\n%s", name, failed.traceback.rstrip())
    return _named(failed.kind[:100])(failed.message)


@lru_cache(maxsize=256)
def _named(kind: str) -> type[SkillCrash]:
    return type(kind, (SkillCrash,), {"is_refusal": kind == PermissionError.__name__})


def ended(code: int, cpu: int) -> ProcessEnded:
    """What the end of a process says: a positive code is its own, a negative one a signal's."""
    if code >= 0:
        return ProcessEnded(f"the skill's process ended: exit code {code}")
    if -code == signal.SIGXCPU:
        return ProcessEnded(f"the skill's process ended: it used up its CPU time of {cpu} s")
    try:
        named = signal.Signals(-code).name
    except ValueError:
        named = f"signal {-code}"
    return ProcessEnded(f"the skill's process ended: killed by {named}")
