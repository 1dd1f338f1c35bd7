"""The capabilities of the release desk: a toolkit, components and resources."""

from __future__ import annotations

import asyncio
from typing import Any

from waypost import Context, Resource, Tool, ToolError, Toolkit, UnknownResource, tool

RELEASES = {
    "2.1": {"status": "shipped", "changes": ["faster search", "fewer clicks"]},
    "2.2": {"status": "testing", "changes": ["dark mode"]},
}


class Desk(Toolkit, category="Releases"):
    """Small tools around releases."""

    @tool(name="release.status")
    async def status(self, release: str) -> dict[str, Any]:
        """The status of one release."""
        if release not in RELEASES:
            raise ToolError(f"No release {release}; try {', '.join(RELEASES)}.")
        return {"release": release, **RELEASES[release]}

    @tool(description="All releases and their status")
    async def releases(self) -> list[dict[str, str]]:
        return [{"release": name, "status": str(facts["status"])} for name, facts in RELEASES.items()]

    @tool(name="release.retire", description="Forget a release", visible=False)
    async def retire(self, release: str) -> str:
        """Hidden from lists, found through the catalog."""
        return f"Release {release} would be forgotten now."


class RunChecks(Tool, category="Releases", timeout=5.0):
    """Run the checks of a release and report progress."""

    release: str
    checks: int = 3

    async def execute(self, ctx: Context) -> dict[str, Any]:
        """Pretend to check, one step at a time."""
        for done in range(1, self.checks + 1):
            await asyncio.sleep(0.05)
            await ctx.progress(done, self.checks, f"check {done} passed")
        return {"release": self.release, "passed": self.checks}


class WaitForever(Tool, category="Releases", timeout=0.3):
    """Wait for a sign-off that never comes, to demonstrate a deadline."""

    async def execute(self) -> str:
        """Sleep longer than the deadline allows."""
        await asyncio.sleep(60)
        return "signed off"


class Runbook(Resource, uri="desk://runbook", mime_type="text/markdown"):
    """How to read the status of a release."""

    async def read(self) -> str:
        """The runbook's text."""
        return "# Runbook\n\n`testing` means: wait. `shipped` means: announce it.\n"


class ReleaseNotes(Resource, uri_template="releases://{release}"):
    """What is in a release."""

    release: str

    async def read(self) -> dict[str, Any]:
        """The facts of one release."""
        if self.release not in RELEASES:
            raise UnknownResource(f"releases://{self.release}")
        return RELEASES[self.release]
