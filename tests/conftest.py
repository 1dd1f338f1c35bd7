"""Applies to all tests."""

from __future__ import annotations

import gc
import signal

import hypothesis

# A deadline per example fails on a busy machine; pytest's timeout ends what hangs.
hypothesis.settings.register_profile("waypost", deadline=None)
hypothesis.settings.load_profile("waypost")


def pytest_configure() -> None:
    """Let Ctrl-C end child processes also where a shell started the tests in the background.

    Such a shell ignores SIGINT, and child processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through the collected tests again and again: they stay until the end."""
    gc.collect()
    gc.freeze()
