"""A client that calls whatever hostile upstreams and skills offer: `python -m tests.hostile.callers PORT SEED KIND`."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from typing import Final

from tests.fuzz.hub_under_test import ALICE
from tests.fuzz.senders import Gone, HttpSender, Silent
from tests.hostile.neighbour import call_request
from tests.hostile.payloads import hostile_arguments

SKILLS: Final = ("loop", "memory", "output", "result", "deep", "exit", "files", "sleep", "error")
TOOLS: Final = (*("flood", "huge", "silent", "broken", "shower"), *(f"t{number}" for number in range(30)))


def main() -> None:
    """Call for ever, a few connections at a time, without reading what some of them get."""
    port, chance, kind = int(sys.argv[1]), random.Random(int(sys.argv[2])), sys.argv[3]
    while True:
        senders = [HttpSender(port) for _ in range(4)]
        for sender in senders:
            with suppress(Gone, Silent, OSError):
                if kind == "skill":
                    request = call_request(port, ALICE, "skill:bad", {"input": chance.choice(SKILLS)})
                else:
                    request = call_request(port, ALICE, f"bad.{chance.choice(TOOLS)}", hostile_arguments(chance))
                sender._socket.send(request)
        for sender in senders:
            with suppress(Gone, Silent, OSError):
                sender._socket.socket.settimeout(0.5)
                sender._read()
            sender.close()


if __name__ == "__main__":
    main()
