"""Workers on the wire that know of observers."""

from __future__ import annotations

from typing import Any

from tests.workers.wire import Json, Wire


async def introduce_with_observers(wire: Wire, *functions: str, name: str = "wire", **more: Any) -> None:
    """Offer functions, then introduce the worker with support for observers."""
    for function in functions:
        await wire.send("registerfunction", id=function, **more)
    await wire.introduce(name, features=["observe.v1"])
    for function in functions:
        await wire.next("functionregistered", id=function)


async def observe(wire: Wire, source: str, target: str, observer: str = "o", **more: Any) -> Json:
    """Register an observer and return the answer."""
    terms = {key: more.pop(key) for key in ("args", "filters", "capture", "on", "deliver") if key in more}
    await wire.send(
        "observe", id=observer, source={"function_id": source, **terms}, target={"function_id": target}, **more
    )
    return await wire.next("observeresult", id=observer)


async def agree(wire: Wire, function: str, **more: Any) -> Json:
    """Accept or refuse the next observer, as the owner of a function, and return its message."""
    added = await wire.next("observeradded", function_id=function)
    fields = {"id": added["observer"]["id"], "revision": added["revision"], "namespace": added["namespace"]}
    await wire.send("observerack", function_id=function, **{**fields, **more})
    return added


async def report_event(wire: Wire, function: str, *observers: str, **more: Any) -> None:
    """Report an event to observers."""
    item = {"function_id": function, "invocation_id": "i", "matched": list(observers), "status": "success"}
    times = {"started_at_ms": 1, "duration_ms": 0, "observe_depth": 0}
    await wire.send("invocationsobserved", items=[{**item, **times, **more}])
