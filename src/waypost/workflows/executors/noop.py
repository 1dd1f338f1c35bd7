"""The executor that does nothing."""

from __future__ import annotations

from typing import Any, Final

from waypost.workflows.executors.executor import Run


class Noop:
    """Succeeds at once."""

    kind: Final = "noop"
    evidence: Final = None
    limit: Final = None

    async def run(self, run: Run) -> dict[str, Any]:
        """Nothing; an empty output."""
        return {}
