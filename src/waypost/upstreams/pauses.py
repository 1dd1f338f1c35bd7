"""When a server that failed may be started again."""

from __future__ import annotations

import logging
from typing import Final

from waypost.loops import running_loop

_MOST_FAILURES: Final = 30
_log: Final = logging.getLogger(__name__)


class Pauses:
    """Longer ones after each failure, until a session has lasted.

    A session that is lost may be begun again at once; only when the next one is lost soon as well is that a failure.
    """

    def __init__(self, first: float, longest: float, steady: float) -> None:
        self.problem = ""
        """Why there is no session, where one was wanted."""
        self._first = first
        self._longest = longest
        self._steady = steady
        self._failures = 0
        self._until = 0.0
        self._began: float | None = None
        self._lost_one = False
        self._said = ""

    @property
    def left(self) -> float:
        """Seconds until the next start."""
        return max(0.0, self._until - running_loop().time())

    def begun(self) -> None:
        """A session has begun."""
        self.problem = ""
        self._began = running_loop().time()

    def lost(self, problem: str) -> None:
        """A session came to an end that nobody here wanted."""
        self._look_back()
        if self._lost_one:
            self.failed(problem)
        else:
            self._say(problem)
        self._lost_one = True

    def failed(self, problem: str) -> None:
        """A start came to nothing."""
        self._look_back()
        self._until = running_loop().time() + min(self._first * 2**self._failures, self._longest)
        self._failures = min(self._failures + 1, _MOST_FAILURES)
        self._say(problem)
        self.problem = problem

    def _look_back(self) -> None:
        """Forget what was before a session that lasted."""
        if self._began is not None and running_loop().time() - self._began >= self._steady:
            self._failures, self._lost_one, self._said = 0, False, ""
        self._began = None

    def _say(self, problem: str) -> None:
        # What goes on failing in the same way is said once.
        _log.log(logging.DEBUG if problem == self._said else logging.WARNING, "%s", problem)
        self._said = problem
