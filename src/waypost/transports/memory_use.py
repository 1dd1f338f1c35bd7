"""Keeping the garbage collector out of the way of requests."""

from __future__ import annotations

import gc
from typing import Final

_ALLOCATIONS_BETWEEN_LOOKS: Final = 5_000


def settle() -> None:
    """Set aside what lives as long as the process, so that collections only walk what requests leave behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_LOOKS)
