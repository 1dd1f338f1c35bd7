"""Ports that tests choose before something listens there."""

from __future__ import annotations

import random
import socket

_chance = random.SystemRandom()


def free_port() -> int:
    """A port that was free a moment ago, below those that the kernel gives to others.

    It gives out ports from 32768 on, also to clients. One of them might be taken by the time that a server is started
    there, or started again; a client that connects until then might even be connected to itself.
    """
    while True:
        port = _chance.randrange(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
