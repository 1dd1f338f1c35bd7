"""Changes that an attacker with write access could make to the file of an audit."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Collection
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tests.policy.records import verify
from waypost.policy.audit import Verdict
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

Line = list[Any]
"""An entry in its block: time, principal, capability, decision, content, digest."""
AT, PRINCIPAL, CAPABILITY, DECISION, SAID, DIGEST = range(6)


def with_store(file: Path, work: Callable[[Store], Any]) -> Any:
    """Do something with the store in a file."""

    async def run() -> Any:
        store = Store(SqliteDatabase(file))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def verdict(file: Path) -> Verdict:
    """Verify the audit in a file."""
    found: Verdict = with_store(file, verify)
    return found


def change(file: Path, statement: str, *given: Any) -> int:
    """Run a statement on the file, and return the number of changed rows."""
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute(statement, given)
        return connection.changes()


def written_in(file: Path) -> list[str]:
    """The chains of a file, oldest first."""
    with closing(apsw.Connection(str(file))) as connection:
        return [row[0] for row in connection.execute("SELECT chain FROM audit GROUP BY chain ORDER BY min(rowid)")]


def entries_in(file: Path, chain: str) -> list[tuple[int, int, Line]]:
    """The entries of a chain: number of the block, number of the entry, line."""
    with closing(apsw.Connection(str(file))) as connection:
        rows = list(connection.execute("SELECT number, entries FROM audit WHERE chain = ? ORDER BY number", (chain,)))
    return [
        (block, number, msgspec.json.decode(line))
        for block, text in rows
        for number, line in enumerate(text.splitlines(), block)
    ]


def rewrite_chain(file: Path, chain: str, entries: list[tuple[int, int, Line]]) -> None:
    """Replace the entries of a chain, with index columns that fit the new blocks."""
    change(file, "DELETE FROM audit WHERE chain = ?", chain)
    # Consecutive numbers have the same distance from their positions.
    for _, some in groupby(enumerate(entries), key=lambda placed: (placed[1][0], placed[1][1] - placed[0])):
        block = [entry for _, entry in some]
        lines = [line for _, _, line in block]
        filed = (max(line[AT] for line in lines), len(lines), sum(line[DECISION] == "deny" for line in lines))
        text = msgspec.json.Encoder().encode_lines(lines).decode()
        change(file, "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", chain, block[0][1], *filed, text)


def change_entry(file: Path, chain: str, number: int, spoilt: Callable[[Line], None]) -> None:
    """Change an entry in place, with index columns that fit the changed block."""
    entries = entries_in(file, chain)
    for _, own, line in entries:
        if own == number:
            spoilt(line)
    rewrite_chain(file, chain, entries)


def remove_entries(file: Path, chain: str, numbers: Collection[int]) -> None:
    """Remove entries and leave the others unchanged."""
    rewrite_chain(file, chain, [entry for entry in entries_in(file, chain) if entry[1] not in numbers])


def copied(file: Path, name: object) -> Path:
    """A copy of a file beside it."""
    return Path(shutil.copy(file, file.parent / f"{name}.db"))


def set_to(place: int, value: Any) -> Callable[[Line], None]:
    """Set one field of an entry."""

    def spoilt(line: Line) -> None:
        line[place] = value

    return spoilt


def invert_decision(line: Line) -> None:
    """Invert the indexed decision."""
    line[DECISION] = "allow" if line[DECISION] == "deny" else "deny"


def invert_decision_everywhere(line: Line) -> None:
    """Invert the decision, both indexed and in the content."""
    invert_decision(line)
    line[SAID]["decision"] = line[DECISION]


def change_outcome(line: Line) -> None:
    """Change the outcome in the content."""
    line[SAID]["outcome"] = "error"


def rename(line: Line) -> None:
    """Change the capability, both indexed and in the content."""
    line[CAPABILITY] = line[SAID]["capability"] = "other"


def forge(line: Line) -> None:
    """Change the outcome and compute a digest without the position of the entry."""
    line[SAID]["outcome"] = "error"
    line[DIGEST] = hashlib.sha256(msgspec.json.encode(line[SAID])).hexdigest()
