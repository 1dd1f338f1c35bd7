"""Audit records, a log that writes them, and the entries in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waypost.policy.audit import AuditChains, AuditLog, Record, Verdict
from waypost.stores.audit import AuditEntry
from waypost.stores.directory import Secret
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

SECRET = Secret(Path(), b"s" * 32)


def record(number: int, **values: Any) -> Record:
    """The record of a call that was allowed."""
    return Record(1000.0 + number, "ann", "mcp", f"tool{number}", "allow", **values)


def chains_in(store: Store) -> AuditChains:
    """The audit chains of a store, signed with a fixed secret."""
    chains = AuditChains(store, SECRET)
    chains._secret = SECRET
    return chains


async def verify(store: Store) -> Verdict:
    """Verify the audit of a store."""
    return await chains_in(store).verify()


def log_to(store: Store) -> AuditLog:
    """A log that writes to a store."""
    return AuditLog(chains_in(store), asyncio.create_task)


async def written(store: Store, *records: Record) -> None:
    """Write records as one process would."""
    log = log_to(store)
    for one in records:
        log.add(one)
    await log.written()


async def entries(store: Store) -> dict[str, list[AuditEntry]]:
    """The entries of each chain."""
    return {chain: await store.audit.chain(chain) for chain in await store.audit.chains()}


def kept(chain: list[AuditEntry]) -> list[str]:
    """The capabilities of a chain's entries, without its beginning."""
    return [entry.capability for entry in chain if entry.value.get("action") != "begin"]


def blocked(tmp_path: Path) -> tuple[Store, Callable[[], None]]:
    """A store that cannot be opened until the returned function removes an obstructing file."""
    obstacle = tmp_path / "data"
    obstacle.write_text("in the way")
    return Store(SqliteDatabase(obstacle / "store.db")), obstacle.unlink
