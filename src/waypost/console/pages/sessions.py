"""Sessions and tasks: the clients that are connected, the work they wait for, and the end of either."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Done, Page, View, segment

PAGE_SIZE: Final = 25
STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
TONES: Final = {"completed": "good", "failed": "bad", "input_required": "warn"}


async def load(view: View) -> dict[str, Any]:
    """The sessions and tasks of all replicas, as the URL filters them."""
    query = {name: view.query.get(name, "").strip() for name in ("principal", "client", "status")}
    principal = query["principal"]
    sessions = await view.api.get(
        "sessions", principal=principal, client=query["client"], before=view.query.get("before"), limit=PAGE_SIZE
    )
    tasks = await view.api.get(
        "tasks", principal=principal, status=query["status"], before=view.query.get("tasks"), limit=PAGE_SIZE
    )
    return {
        "query": query,
        "sessions": sessions,
        "tasks": tasks,
        "statuses": STATUSES,
        "tones": TONES,
        "is_filtered": any(query.values()),
    }


async def end(view: View) -> Done:
    """End a session."""
    ended = await view.api.delete(f"sessions/{segment(view.form.get('id', ''))}")
    return Done(f"The session {ended['id']} has ended; its client has to initialize again.")


async def cancel(view: View) -> Done:
    """Cancel a task."""
    task = (await view.api.post(f"tasks/{segment(view.form.get('id', ''))}/cancel"))["task"]
    return Done(f"The task {task['id']} is {task['status']}.")


PAGE: Final = Page(
    "sessions",
    "Sessions and tasks",
    "sessions.html",
    load,
    {"end": end, "cancel": cancel},
    section="Hub",
    icon="sessions",
    shortcut="e",
    live=("sessions", "tasks"),
    every=5,
)
