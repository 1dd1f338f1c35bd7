"""Where a worker begins: who it says it is, and where it connects to."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Final

from waypost.version import __version__
from waypost.worker.connection import check_url, headers_of
from waypost.worker.observing import FEATURE
from waypost.worker.pauses import Handshake, Reconnecting
from waypost.worker.worker import Worker

URL: Final = "ws://127.0.0.1:49134"
"""Where an engine is when nobody says."""


def register_worker(
    url: str | None = None,
    *,
    name: str | None = None,
    token: str | None = None,
    namespace: str | None = None,
    description: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int = 30_000,
    max_running: int = 64,
    reconnecting: Reconnecting | None = None,
    handshake: Handshake | None = None,
) -> Worker:
    """A worker of the engine at `url`, which begins to connect at once and stays connected until `shutdown`.

    It lives in the event loop that runs, or in a thread of its own where none does. What is left out is taken from
    `III_URL`, `III_WORKER_NAME`, `III_TOKEN` and `III_NAMESPACE`.
    """
    environment = os.environ
    about = {
        "runtime": "python",
        "version": __version__,
        "name": environment.get("III_WORKER_NAME") or name or f"{platform.node()}:{os.getpid()}",
        "os": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "pid": os.getpid(),
        "isolation": environment.get("III_ISOLATION") or None,
        "namespace": namespace or environment.get("III_NAMESPACE", "").strip() or None,
        "telemetry": {"framework": "waypost"},
        "description": description,
        "features": [FEATURE],
    }
    shown = environment.get("III_TOKEN", "").strip() if token is None else token
    return Worker(
        check_url(url or environment.get("III_URL") or URL),
        {key: value for key, value in about.items() if value is not None},
        headers_of(shown, headers or {}),
        timeout_ms=timeout_ms,
        max_running=max_running,
        reconnecting=reconnecting or Reconnecting(),
        handshake=handshake or Handshake(),
    )
