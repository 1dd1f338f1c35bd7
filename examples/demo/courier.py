"""A worker of the demo: it sends release notes to people and publishes a skill about itself."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from waypost.worker import register_worker

SKILL = """\
# courier

Carries release notes to the people who wait for them.

Ask `courier__carry` once a release has shipped. Where it is now: [`route`](iii://fn/courier/route).
"""


@dataclass
class Errand:
    """The release notes to send, and their recipient."""

    release: str
    to: str = "the team"


async def main(url: str) -> None:
    """Offer the functions and the skill until the hub stops."""
    worker = register_worker(url, name="courier")

    @worker.register_function("courier::carry")
    async def carry(errand: Errand) -> dict[str, str]:
        """Send the notes of a release to a recipient."""
        return {"release": errand.release, "to": errand.to, "status": "delivered"}

    @worker.register_function("courier::route")
    async def route() -> str:
        """The position of the courier."""
        return "# Route\n\nBetween the desk and the door."

    await worker.publish_skill("courier", SKILL)
    await worker.closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
