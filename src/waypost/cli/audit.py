"""`waypost audit`: the audit of a running hub, and whether what is in its store is intact."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost import config
from waypost.cli.client import HUB_OPTIONS, find_hub
from waypost.cli.command import Argument, Columns, Command, Group, Output, Progress, Row, format_table, parse_count
from waypost.cli.store import OpenStore, find_store
from waypost.cli.target import LOCAL_TARGET, data_directory, is_config, load_hub
from waypost.errors import WaypostError
from waypost.policy.anchors import Anchors
from waypost.policy.audit import AuditChains, Verdict
from waypost.runtime.core import Launch
from waypost.settings import Audit
from waypost.stores import schema
from waypost.stores.directory import Secret
from waypost.stores.store import Store


def _time(entry: Row) -> str:
    return datetime.fromtimestamp(entry["at"], UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _way_in(entry: Row) -> str:
    # The caller of an operator's call, read or prompt is the program; that of an act is the address of a browser.
    kind: str = entry["callerType"]
    is_act = "." in entry.get("action", "call")
    return kind if is_act or kind != "console" else entry.get("caller") or kind


_COLUMNS: Final[Columns] = {
    "TIME": _time,
    "PRINCIPAL": "principal",
    "VIA": _way_in,
    "ACTION": lambda entry: entry.get("action", "call"),
    "CAPABILITY": "capability",
    "DECISION": "decision",
    "OUTCOME": "outcome",
    # The first records of a chain hold the ends of all others, as JSON.
    "REASON": lambda entry: "" if entry["capability"] == "audit" else entry.get("reason"),
}


def tail(args: Namespace) -> Output:
    """Show the latest entries in the order they were written, of the hub or, where none runs, of its store."""
    args.data = data_directory(args)
    try:
        hub = find_hub(args)
    except WaypostError:
        if not _knows_store(args):
            raise
        entries = asyncio.run(_read_store(args))
    else:
        entries = hub.get_pages("audit", "entries", args.limit, decision=args.decision)
    entries.reverse()
    return Output(entries, format_table(_COLUMNS, entries))


async def _read_store(args: Namespace) -> list[dict[str, Any]]:
    async with _open_audit(args) as (store, _):
        return [one.as_row() for one in await store.audit.latest(args.limit, decision=args.decision)]


def verify(args: Namespace) -> Output:
    """Check every entry; any problem fails the command."""
    if _knows_store(args):
        verdict = msgspec.to_builtins(asyncio.run(_verify_store(args)))
    else:
        verdict = find_hub(args).get("audit/verify")
    if verdict["problems"]:
        return Output(verdict, "\n".join(verdict["problems"]), status=1)
    entries = "1 entry" if verdict["entries"] == 1 else f"{verdict['entries']} entries"
    chains = "1 chain" if verdict["chains"] == 1 else f"{verdict['chains']} chains"
    stamps = f", {verdict['anchors']} of them time-stamped" if verdict.get("anchors") else ""
    return Output(verdict, f"The audit is intact: {entries} in {chains}{stamps}.")


async def _verify_store(args: Namespace) -> Verdict:
    async with _open_audit(args) as (_, chains):
        with Progress("verifying the audit"):
            return await chains.verify()


def _knows_store(args: Namespace) -> bool:
    """Whether it is said where the store is; without that, only a hub that runs knows its own."""
    is_said = args.store is not None or not is_config(args.target) or Path(args.target).exists()
    return args.url is None and is_said


@asynccontextmanager
async def _open_audit(args: Namespace) -> AsyncIterator[tuple[Store, AuditChains]]:
    """Read the store and the secret as a hub does; one may be running on them."""
    data = data_directory(args)
    if args.store is not None or is_config(args.target):
        store, secret = find_store(args, args.store), Secret(data)
        audit = config.load(Path(args.target)).config.audit if args.store is None else Audit()
        chains = AuditChains(store, secret, data, Anchors(store, audit.anchor), retention=audit.retention_s)
    else:
        core = load_hub(args.target).launch(Launch(data_dir=data, durable=True)).core
        store, secret, chains = core.store, core.secret, core.chains
    database = OpenStore(store).store.database
    try:
        if await database.schema_version() < schema.LATEST:
            raise WaypostError(f"{database.name} has the tables of an older version; run `waypost store migrate`.")
        if not secret.exists:
            raise WaypostError(
                f"There is no secret in {data}; name the data directory of the hub with --data, or set WAYPOST_SECRET."
            )
        yield store, chains
    finally:
        await store.close()


_STORE: Final = Argument(
    "--store", metavar="URL", help="the store, such as postgresql://db/waypost (default: the target's)"
)
COMMAND: Final = Group(
    "Show the audit of a running hub, and verify the one in a store.",
    "waypost audit tail",
    {
        "tail": Command(
            tail,
            "Show the latest entries, the newest last: of a running hub, else those in the store.",
            "waypost audit tail --decision deny",
            LOCAL_TARGET,
            Argument("--limit", type=parse_count, default=20, metavar="N", help="how many entries (default: 20)"),
            Argument("--decision", choices=("allow", "deny"), help="only entries with this decision"),
            _STORE,
            *HUB_OPTIONS,
        ),
        "verify": Command(
            verify,
            "Check that no entry was changed or removed, in the store itself or by the hub at a URL.",
            "waypost audit verify waypost.yaml",
            LOCAL_TARGET,
            _STORE,
            *HUB_OPTIONS,
        ),
    },
)
