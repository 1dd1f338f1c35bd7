"""A worker that reports the events of a function to its observers itself."""

import asyncio
from dataclasses import dataclass
from typing import Any

from waypost.worker import ObserveHooks, Observer, ObserveRejection, register_worker


@dataclass
class Wish:
    every: int


class Ticks(ObserveHooks):
    delivery = "owner"
    args_format = Wish

    def on_observer_added(self, observer: Observer) -> None:
        if observer.args["every"] < 1:
            raise ObserveRejection("NEVER", "every has to be 1 or more")


async def main() -> None:
    async with register_worker(name="clock") as iii:
        ticks = iii.register_function("clock::tick", lambda: None, observe=Ticks())
        rang = asyncio.Event()

        @iii.register_function("alarm::ring", metadata={"internal": True})
        async def ring(event: dict[str, Any]) -> None:
            print("second", event["second"])
            rang.set()

        source = {"function_id": "clock::tick", "args": {"every": 3}, "deliver": "input"}
        await iii.observe(source, "alarm::ring").ready()
        for second in (1, 2, 3):
            for observer in ticks.observers():
                if second % observer.args["every"] == 0:
                    observer.emit({"second": second})
        await rang.wait()
        try:
            await iii.observe({**source, "args": {"every": 0}}, "alarm::ring").ready()
        except ObserveRejection as error:
            print(error.code, error.message)


if __name__ == "__main__":
    asyncio.run(main())
