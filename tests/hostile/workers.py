"""A hostile worker with the token: `python -m tests.hostile.workers PORT SEED`, until it is killed."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.fuzz.corpus import invoke
from tests.fuzz.senders import Gone, Silent, WorkerSender
from tests.hostile.payloads import hostile_arguments, hostile_schema


class HostileWorker:
    """Attacks over the worker socket, each in endless variations."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._number = 0

    def run(self) -> None:
        """Attack for ever, with a new connection after each that was closed."""
        attacks: tuple[Callable[[], list[Any]], ...] = (
            self.offer_schemas,
            self.offer_many,
            self.fetch_often,
            self.publish,
            self.call,
            self.write_state,
            self.observe,
        )
        while True:
            with suppress(Gone, Silent, OSError, AssertionError):
                sender = WorkerSender(self._port)
                about = {"name": f"w{self._number}", "notes": "n" * self._chance.choice((10, 1_000_000))}
                sender.send([json.dumps(invoke("engine::workers::register", about)).encode()])
                for _ in range(20):
                    sender.send([json.dumps(message).encode() for message in self._chance.choice(attacks)()])
                sender.close()

    def _name(self) -> str:
        self._number += 1
        return f"bad::{self._number % 500}{'x' * self._chance.choice((0, 50, 5_000))}"

    def offer_schemas(self) -> list[Any]:
        """A2: functions whose schemas are costly, and a call of each."""
        name, schema = self._name(), hostile_schema(self._chance)
        offered = {"type": "registerfunction", "id": name, "request_format": schema, "response_format": schema}
        return [offered, invoke(name, hostile_arguments(self._chance))]

    def offer_many(self) -> list[Any]:
        """Very many functions, offered and withdrawn."""
        names = [self._name() for _ in range(50)]
        return [{"type": "registerfunction", "id": name, "description": "d" * 500} for name in names] + [
            {"type": "unregisterfunction", "id": name} for name in names
        ]

    def fetch_often(self) -> list[Any]:
        """A6: one document thousands of times."""
        uris = ["iii://bad/skill"] * self._chance.choice((10, 1_000, 8_000, 100_000))
        return [invoke("skill::fetch", {"uris": uris})]

    def publish(self) -> list[Any]:
        """Large documents, and documents of many names."""
        text = "# T\n\n" + "word " * self._chance.choice((10, 10_000, 100_000))
        return [
            invoke(
                "skills::register", {"id": f"bad/{self._chance.choice(('skill', self._number % 50))}", "skill": text}
            )
        ]

    def call(self) -> list[Any]:
        """Very many calls at once, with large arguments."""
        tool = self._chance.choice(
            ("add", "engine::functions::list", "engine::workers::list", "state::get", "bad::none", "bad::1")
        )
        return [invoke(tool, hostile_arguments(self._chance))] * self._chance.choice((1, 100))

    def write_state(self) -> list[Any]:
        """Large values, and updates with very many operations."""
        operations = [{"type": "set", "path": f"a{n}", "value": n} for n in range(self._chance.choice((5, 2_000)))]
        value = {"scope": "bad", "key": f"k{self._number % 20}"}
        return [
            invoke("state::set", {**value, "data": {"v": "x" * self._chance.choice((10, 500_000))}}),
            invoke("state::update", {**value, "ops": operations}),
        ]

    def observe(self) -> list[Any]:
        """Observers of everything, in a circle."""
        return [
            {"type": "registerfunction", "id": "bad::a"},
            {"type": "observe", "id": "o1", "source": {"function_id": "bad::a"}, "target": {"function_id": "bad::a"}},
            *[invoke("bad::a", {"n": n}, action={"type": "void"}) for n in range(50)],
        ]


if __name__ == "__main__":
    HostileWorker(int(sys.argv[1]), int(sys.argv[2])).run()
