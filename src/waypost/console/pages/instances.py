"""Instances: the list of workflow instances by filter, which the URL holds, and what is done with all of a filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from waypost.console.page import Done, Page, Refused, View

LIMIT: Final = 50
STATUSES: Final = {
    "waiting_for_action": ("Waiting for action", ""),
    "waiting_for_approval": ("Waiting for approval", "warn"),
    "waiting_for_workflow": ("Waiting for a workflow", ""),
    "executing": ("Executing", ""),
    "going_on": ("Going on", ""),
    "unknown_outcome": ("Unknown outcome", "bad"),
    "chain_failed": ("Failed step", "bad"),
    "succeeded": ("Succeeded", "good"),
    "failed": ("Failed", "bad"),
    "cancelled": ("Cancelled", ""),
    "timed_out": ("Timed out", "warn"),
}
"""What each status is called, and its tone."""
_AGES: Final = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
_HOURS: Final = {"1h": 1, "24h": 24, "7d": 168, "30d": 720}
_QUICK: Final = ("", "failed", "chain_failed", "unknown_outcome", "waiting_for_approval", "waiting_for_action")
"""The statuses that are one click away."""
_DONE: Final = {
    "cancel": "cancelled",
    "retry": "retried",
    "succeeded": "resolved as done",
    "failed": "resolved as not done",
}


async def load(view: View) -> dict[str, Any]:
    """One page of instances, and what can be filtered by."""
    query = view.query
    definitions = (await view.api.get("workflows"))["workflows"]
    found: dict[str, Any] = {
        "definitions": definitions,
        "states": [],
        "statuses": STATUSES,
        "ages": _AGES,
        "quick": _QUICK,
        "is_filtered": any(query.get(name) for name in ("q", "definition", "status", "state", "principal", "age")),
        "is_invalid": False,
        "batch": None,
        "runs": [],
        "next": None,
    }
    definition = query.get("definition", "")
    if any(one["id"] == definition for one in definitions):
        found["states"] = list((await view.api.get(f"workflows/{definition}"))["states"])
    try:
        page = await view.api.get("runs", **_selection(view), before=query.get("before"), limit=LIMIT)
    except Refused as error:
        if error.status != 400:
            raise
        return {**found, "is_invalid": True, "alert": error.message, "http_status": 400}
    return {**found, **page}


def _selection(view: View) -> dict[str, Any]:
    """The filter in the URL as the API takes it."""
    query = view.query
    given = {name: query.get(name, "").strip() for name in ("definition", "status", "principal")}
    # A state is one of the definition that was chosen with it.
    given |= {"state": query.get("state", "") if given["definition"] else "", "text": query.get("q", "").strip()}
    if hours := _HOURS.get(query.get("age", "")):
        given["since"] = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    return {name: value for name, value in given.items() if value}


async def cancel(view: View) -> Done:
    """Cancel all instances of the filter, after a dry run."""
    return await _change(view, "cancel")


async def retry(view: View) -> Done:
    """Retry all unknown outcomes and failed steps of the filter, after a dry run."""
    return await _change(view, "retry")


async def resolve(view: View) -> Done:
    """Resolve all unknown outcomes of the filter, after a dry run."""
    return await _change(view, "failed" if view.form.get("as") == "failed" else "succeeded")


async def _change(view: View, action: str) -> Done:
    newest = view.form.get("newest", "")
    body = {**_selection(view), "action": action, "newest": newest, "dryRun": not newest}
    batch = await view.api.post("runs/batch", {**body, "reason": view.form.get("reason", "")})
    total, many = batch["total"], "instance" if batch["total"] == 1 else "instances"
    if newest:
        failures, first = batch["failures"], ""
        if failures:
            first = f" {len(failures)} could not be, such as {failures[0]['workflowId']}: {failures[0]['error']}"
        return Done(f"{total} {many} {_DONE[action]}.{first}")
    if not total:
        return Done("No instance of this view can be changed like this. Nothing was changed.")
    more = " There are more; repeat it for the rest." if batch["more"] else ""
    batch |= {"verb": _DONE[action], "reason": view.form.get("reason", "")}
    return Done(f"{total} {many} would be {_DONE[action]}. Nothing has changed yet.{more}", {"batch": batch})


PAGE: Final = Page(
    "instances",
    "Instances",
    "instances.html",
    load,
    {"cancel": cancel, "retry": retry, "resolve": resolve},
    section="Work",
    icon="instances",
    shortcut="i",
    live=("instances",),
)
