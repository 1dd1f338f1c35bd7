"""A worker to be killed and cut off: `python carrier.py URL`; what its function does is a line in `MILL_EFFECTS`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from waypost.worker import Reconnecting, register_worker

EFFECTS: Final = Path(os.environ.get("MILL_EFFECTS", os.devnull))
PAUSE: Final = 0.005
"""Seconds between the effect and the answer, for a fault to fall into."""


def _write(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(line)


async def carry(payload: dict[str, str]) -> dict[str, str]:
    """Write a line that must be written only once."""
    _write(f"once {payload['ticket']} -\n")
    await asyncio.sleep(PAUSE)
    return payload


async def main(url: str) -> None:
    """Offer the function until the process is killed."""
    worker = register_worker(url, name="carrier", reconnecting=Reconnecting(first=0.1, longest=0.5))
    worker.register_function("mill::carry", carry)
    await worker.closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
