"""One instance: its graph and the way it took, what happened step by step, and what can be done with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from waypost.console.page import Done, InvalidForm, Page, View, read_arguments, segment
from waypost.console.pages.instances import STATUSES
from waypost.console.rendering import count_html_bytes, split_text

LIMIT: Final = 20
MAX_GRAPH_BYTES: Final = 14_000
MAX_TIMELINE_BYTES: Final = 9_000
"""How much of all steps the page shows as HTML; those for which nothing is left say only what happened, in short."""
_MAX_RAW_BYTES: Final = 2_500
_MAX_CHANGES: Final = 6
_MAX_VALUE_CHARACTERS: Final = 120
_MAX_SUMMARY_CHARACTERS: Final = 600
_LEAST_SUMMARY_CHARACTERS: Final = 60

Row = dict[str, Any]


async def load(view: View) -> dict[str, Any]:
    """The instance, its latest history or an older part of it, and its relatives."""
    place = f"runs/{segment(view.variables['id'])}"
    run = await view.api.get(place, order="desc", before=_version(view), limit=LIMIT)
    history, notes = run.pop("history"), run.pop("notes")
    following, older = run.pop("next", None), []
    if following:
        # The values that the steps of this page replaced may have been written by steps of the next one.
        older = (await view.api.get(place, order="desc", before=following, limit=LIMIT))["history"]
    drawn = (await view.api.get(f"{place}/graph"))["text"]
    raw = split_text(json.dumps(run, indent=2, ensure_ascii=False), _MAX_RAW_BYTES)
    return {
        "title": run["definitionId"],
        "run": run,
        "status_label": STATUSES[run["status"]],
        "statuses": STATUSES,
        # The drawing escapes every name in it.
        "graph": Markup(drawn) if len(drawn.encode()) <= MAX_GRAPH_BYTES else "",  # noqa: S704
        "steps": _describe(history, notes, older),
        "next": following,
        "children": (await view.api.get(f"{place}/children"))["runs"],
        "transitions": _transitions(run, view.form),
        "raw": raw[0] if len(raw) == 1 else f"{raw[0]}\n…",
        "ended": bool(run.get("terminal")),
    }


def _version(view: View) -> int | None:
    text = view.query.get("before", "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise InvalidForm(f"before: {text[:40]!r} is not a version; follow a link of the page.")
    return int(text)


def _describe(history: list[Row], notes: list[Row], before: list[Row]) -> list[Row]:
    """The steps, the newest first: a sentence each, and what it changed in the context; `before` are older steps."""
    found = []
    for place, row in enumerate(history):
        older = [one.get("delta") or {} for one in (*history[place + 1 :], *before)]
        found.append({**row, "text": summarize(row), "tone": _tone(row), "changes": _changes(row, older)})
    found += [{**note, "text": summarize(note), "tone": "bad", "changes": []} for note in notes]
    return _fit(sorted(found, key=lambda row: (row["at"], row["version"]), reverse=True))


def _fit(steps: list[Row]) -> list[Row]:
    """The steps, of which the newest keep their changes as far as they fit the page."""
    left, fitting = MAX_TIMELINE_BYTES, []
    for step in steps:
        text, changes = _shorten(step["text"], _MAX_SUMMARY_CHARACTERS), step["changes"]
        left -= count_html_bytes(text) + sum(count_html_bytes("".join(change.values())) for change in changes)
        if left < 0:
            text = _shorten(text, _LEAST_SUMMARY_CHARACTERS)
            changes = [{"name": f"{len(changes)} values", "before": "", "after": ""}] if changes else []
        fitting.append({**step, "text": text, "changes": changes})
    return fitting


def summarize(row: Row) -> str:
    """What happened in one step, as a sentence."""
    move, by, target = row["transition"], row.get("by") or "the hub", row.get("to")
    reason = f": {row['reason']}" if row.get("reason") else ""
    if row.get("outcome") in ("rejected", "expired"):
        who = f" by {row['decidedBy']}" if row.get("decidedBy") else ""
        return f"{move} was {row['outcome'].replace('expired', 'not decided in time')}{who}{reason}"
    if "outcome" in row:
        message = (row.get("error") or {}).get("message", "")
        return f"{move} by {by}: {row['outcome']}{'. ' if message else ''}{message}"
    if move == "$start":
        return f"{by} started it in {target}"
    if move == "$cancel":
        return f"{by} cancelled it in {target}{reason}"
    if move == "$timeout":
        return f"It timed out and went to {target}"
    if move == "$enter":
        return f"On entering {target}"
    way = f"stayed in {target}" if row.get("from") == target else f"went from {row.get('from')} to {target}"
    if row.get("chained"):
        return f"{move} followed by itself and {way}"
    approvers = ", ".join(one["by"] for one in row.get("approvals") or ())
    approved = f", approved by {approvers}" if approvers else ""
    return f"{by} took {move} and {way}{approved}"


def _tone(row: Row) -> str:
    if row.get("outcome") or row["transition"] in ("$cancel", "$timeout"):
        return "warn"
    return ""


def _changes(row: Row, older: list[Row]) -> list[Row]:
    """What a step wrote into the context; the value before is known if a step of this page or the next one wrote it."""
    delta = row.get("delta") or {}
    found = []
    for name, value in list(delta.items())[:_MAX_CHANGES]:
        before = next((one[name] for one in older if name in one), None)
        was = "" if before is None or before == value else _shorten(before)
        found.append({"name": name[:_MAX_VALUE_CHARACTERS], "before": was, "after": _shorten(value)})
    if len(delta) > _MAX_CHANGES:
        found.append({"name": f"and {len(delta) - _MAX_CHANGES} more", "before": "", "after": ""})
    return found


def _shorten(value: Any, max_characters: int = _MAX_VALUE_CHARACTERS) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def _transitions(run: Row, typed: Mapping[str, str]) -> list[Row]:
    """The transitions that can be taken, with a form each: what was typed, else what the workflow fills in."""
    found = []
    for link in run["links"]:
        if link["rel"] != "transition":
            continue
        args = link["args"]
        filled = {
            f"arg.{name}": value if isinstance(value, str) else json.dumps(value)
            for name, value in args.get("arguments", {}).items()
        }
        name = args["transition"]
        form = {**filled, **typed} if typed.get("transition") == name else filled
        found.append(
            {
                "name": name,
                "title": link.get("title", name),
                "description": link.get("description", ""),
                "schema": link.get("inputSchema"),
                "form": form,
                "is_open": typed.get("transition") == name,
            }
        )
    return found


async def submit(view: View) -> Done:
    """Take a transition, with the arguments of its form."""
    place, name = f"runs/{segment(view.variables['id'])}", view.form.get("transition", "")
    run = await view.api.get(place, order="desc", limit=1)
    schema = next((one["schema"] for one in _transitions(run, {}) if one["name"] == name), None)
    version = view.form.get("version", "")
    if not version.isdecimal():
        raise InvalidForm(f"version: {version[:40]!r} is not a number; load the page again.")
    body = {"transition": name, "version": int(version), "arguments": read_arguments(schema, view.form)}
    return _say(await view.api.post(f"{place}/submit", body), name)


async def cancel(view: View) -> Done:
    """Cancel the instance."""
    place = f"runs/{segment(view.variables['id'])}/cancel"
    return _say(await view.api.post(place, {"reason": view.form.get("reason", "")}), "Cancelled")


async def retry(view: View) -> Done:
    """Run a transition of unknown outcome again, or continue a chain that failed."""
    place = f"runs/{segment(view.variables['id'])}/resolve"
    return _say(await view.api.post(place, {"as": "retry"}), "Retried")


async def resolve(view: View) -> Done:
    """Say whether a transition of unknown outcome was done."""
    how, output = view.form.get("as", ""), view.form.get("output", "").strip()
    body: dict[str, Any] = {"as": how}
    if how == "succeeded" and output:
        try:
            body["output"] = json.loads(output)
        except (ValueError, RecursionError) as error:
            raise InvalidForm(f"Output: {output[:80]!r} is not JSON: {error}.") from None
    done = "done" if how == "succeeded" else "not done"
    return _say(await view.api.post(f"runs/{segment(view.variables['id'])}/resolve", body), f"Resolved as {done}")


def _say(run: Row, what: str) -> Done:
    error = run.get("error") or {}
    after = f" {error['message']}" if error.get("message") else ""
    return Done(f"{what}: now in {run['state']}, {STATUSES[run['status']][0].lower()}.{after}")


PAGE: Final = Page(
    "instances/{id}",
    "Instance",
    "instance.html",
    load,
    {"submit": submit, "cancel": cancel, "retry": retry, "resolve": resolve},
    live=("instances", "approvals"),
)
