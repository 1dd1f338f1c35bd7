"""A worker with typed payloads, failures with codes, shared state, a trigger of its own, and calls of all kinds."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from waypost.worker import VOID, InvocationFailed, enqueue, register_worker


@dataclass
class Order:
    id: str
    lines: int = 1


async def main() -> None:
    iii = register_worker(name="orders", description="Keeps orders.")
    placed = iii.register_trigger_type("orders::placed", "Fires after an order was placed.")

    @iii.register_function("orders::place")
    async def place(order: Order) -> dict[str, str]:
        """Place an order."""
        if order.lines == 0:
            raise InvocationFailed(f"The order {order.id} is empty.", "order_empty")
        await iii.trigger("state::set", {"scope": "orders", "key": order.id, "value": {"lines": order.lines}})
        placed.fire({"id": order.id})
        return {"status": "placed"}

    @iii.register_function("orders::confirm", metadata={"internal": True})
    async def confirm(event: dict[str, str]) -> None:
        print("confirmed", event["id"])

    iii.register_trigger("orders::placed", "orders::confirm")

    print(await iii.trigger("orders::place", {"id": "a1", "lines": 2}, timeout_ms=5_000))
    await iii.trigger("orders::confirm", {"id": "a2"}, action=VOID)
    receipt = await iii.trigger("orders::place", {"id": "a3"}, action=enqueue("orders"))
    print("receipt", len(receipt["messageReceiptId"]))
    try:
        await iii.trigger("orders::place", {"id": "a4", "lines": 0})
    except InvocationFailed as failed:
        print(failed.code, failed)

    await iii.closed()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
