"""A worker whose every string tries to be markup."""

from __future__ import annotations

import asyncio
import sys

from tests.console.markup import EVIL, HOSTILE
from waypost.worker import register_worker


async def main(url: str) -> None:
    worker = register_worker(url, name=EVIL, description=HOSTILE)

    @worker.register_function("courier::carry", description=HOSTILE)
    async def carry() -> str:
        return HOSTILE

    await worker.publish_skill("courier", f"# {HOSTILE}\n\n{HOSTILE}\n\n- {HOSTILE}\n\n```\n{HOSTILE}\n```\n")
    await worker.closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
