"""Whether the audit is as it was written: no chain has gaps, digests are right, nothing went before its time."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from waypost.policy.audit import all_chains, digest_of
from waypost.stores.audit import RETENTION_S, AuditEntry, Block
from waypost.stores.store import Store

_Ends = dict[str, tuple[int, str, float]]


class Verdict(msgspec.Struct, frozen=True):
    """What was looked at and what is wrong with it."""

    chains: int
    entries: int
    problems: list[str]


async def verify(store: Store) -> Verdict:
    """Look at every entry of every chain."""
    over = time.time() - RETENTION_S
    chains = await all_chains(store)
    claims = [(chain, await _claimed(store, chain)) for chain in chains]
    named = {(other, end[0]): end[1] for _, ends in claims for other, end in ends.items()}
    problems: list[str] = []
    ends: dict[str, int] = {}
    entries = 0
    for chain in chains:
        last: AuditEntry | None = None
        while blocks := await store.audit.blocks(chain, ends.get(chain, 0)):
            for block in blocks:
                found = []
                for entry in block.entries:
                    found.append(_problem(entry, last, over, named.get((chain, entry.number), entry.digest)))
                    last = entry
                if block.is_misfiled and not any(found):
                    found.append(_misfiled(block))
                problems += filter(None, found)
                entries += len(block.entries)
            ends[chain] = max(block.entries[-1].number for block in blocks)
    problems += [problem for chain, said in claims for problem in _missing_ends(chain, said, ends, over)]
    return Verdict(len(ends), entries, problems)


async def _claimed(store: Store, chain: str) -> _Ends:
    """The ends of other chains that a chain begins with, if its beginning is there and can be read."""
    first = await store.audit.chain(chain, 0, 1)
    try:
        return msgspec.json.decode(_said(first[0])["reason"], type=_Ends)
    except (msgspec.MsgspecError, KeyError, TypeError, IndexError):
        return {}


def _said(entry: AuditEntry) -> dict[str, Any]:
    return entry.value if isinstance(entry.value, dict) else {}


def _problem(entry: AuditEntry, before: AuditEntry | None, over: float, digest: str) -> str | None:
    place, said = f"Entry {entry.number} of chain {entry.chain}", _said(entry)
    if entry.digest != digest_of(entry):
        return f"{place} was changed: its digest is wrong."
    if entry.digest != digest:
        return f"{place} is not the one that another chain names."
    columns = (entry.at, entry.principal, entry.capability, entry.decision)
    if columns != tuple(said.get(name) for name in ("at", "principal", "capability", "decision")):
        return f"{place} was changed: what it is found by differs from what it says."
    if before is None:
        is_let_go = entry.number == 1 or said.get("previousAt", 0.0) < over
        return None if is_let_go else f"{place} is the first that is left: those before it are missing."
    if entry.number != before.number + 1:
        return f"{place} follows {before.number}: entries between them are missing."
    if said.get("previous", "") != before.digest:
        return f"{place} does not follow the one before it: one of them was replaced."
    return None


def _misfiled(block: Block) -> str:
    place = f"Entry {block.number} of chain {block.chain} and those written with it"
    return f"{place} were changed: what they are found by differs from what they say."


def _missing_ends(chain: str, said: _Ends, ends: dict[str, int], over: float) -> list[str]:
    """What a chain says was there when it began, and is not any more though its time is not over."""
    return [
        f"Chain {other} ended at {number} when chain {chain} began; now it ends at {ends.get(other, 0)}."
        for other, (number, _, at) in said.items()
        if ends.get(other, 0) < number and (other in ends or at >= over)
    ]
