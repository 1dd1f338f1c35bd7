"""A worker that observes the calls of a function, from any caller."""

import asyncio
from typing import Any

from waypost.worker import register_worker


async def main() -> None:
    async with register_worker(name="watcher") as iii:
        heard = asyncio.Event()

        @iii.register_function("payments::charge")
        async def charge(payment: dict[str, int]) -> dict[str, bool]:
            return {"charged": payment["amount"] < 10_000}

        @iii.register_function("alerts::large", metadata={"internal": True})
        async def large(event: dict[str, Any]) -> None:
            print(event["caller"]["worker_name"], "charged", event["input"]["amount"], event["output"])
            heard.set()

        alerts = iii.observe(
            {"function_id": "payments::charge", "filters": {"input.amount": {"$gte": 500}}},
            "alerts::large",
            {"max_in_flight": 4},
        )
        await alerts.ready()
        for amount in (20, 700):
            await iii.trigger("payments::charge", {"amount": amount})
        await heard.wait()
        alerts.dispose()


if __name__ == "__main__":
    asyncio.run(main())
