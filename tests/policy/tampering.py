"""What somebody who can write to the file of an audit could do to it."""

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
"""An entry in its block: time, principal, capability, decision, what it says, digest."""
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
    """What a check of the audit in a file finds."""
    found: Verdict = with_store(file, verify)
    return found


def change(file: Path, statement: str, *given: Any) -> int:
    """Do with the file what the hub would not."""
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute(statement, given)
        return connection.changes()


def written_in(file: Path) -> list[str]:
    """The chains of a file, the first written first."""
    with closing(apsw.Connection(str(file))) as connection:
        return [row[0] for row in connection.execute("SELECT chain FROM audit GROUP BY chain ORDER BY min(rowid)")]


def entries_in(file: Path, chain: str) -> list[tuple[int, int, Line]]:
    """The entries of a chain, each with the numbers of its block and its own."""
    with closing(apsw.Connection(str(file))) as connection:
        rows = list(connection.execute("SELECT number, entries FROM audit WHERE chain = ? ORDER BY number", (chain,)))
    return [
        (block, number, msgspec.json.decode(line))
        for block, text in rows
        for number, line in enumerate(text.splitlines(), block)
    ]


def file_anew(file: Path, chain: str, entries: list[tuple[int, int, Line]]) -> None:
    """Put entries in the place of those of a chain, each block filed under what is in it then."""
    change(file, "DELETE FROM audit WHERE chain = ?", chain)
    # Numbers without a gap have the same distance from their places.
    for _, some in groupby(enumerate(entries), key=lambda placed: (placed[1][0], placed[1][1] - placed[0])):
        block = [entry for _, entry in some]
        lines = [line for _, _, line in block]
        filed = (max(line[AT] for line in lines), len(lines), sum(line[DECISION] == "deny" for line in lines))
        text = msgspec.json.Encoder().encode_lines(lines).decode()
        change(file, "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", chain, block[0][1], *filed, text)


def spoil(file: Path, chain: str, number: int, spoilt: Callable[[Line], None]) -> None:
    """Change an entry where it stands, and file its block under what it says then."""
    entries = entries_in(file, chain)
    for _, own, line in entries:
        if own == number:
            spoilt(line)
    file_anew(file, chain, entries)


def take_out(file: Path, chain: str, numbers: Collection[int]) -> None:
    """Take entries out, the others as they were."""
    file_anew(file, chain, [entry for entry in entries_in(file, chain) if entry[1] not in numbers])


def copied(file: Path, name: object) -> Path:
    """A copy of a file beside it."""
    return Path(shutil.copy(file, file.parent / f"{name}.db"))


def set_to(place: int, value: Any) -> Callable[[Line], None]:
    """Put something else in one place of an entry."""

    def spoilt(line: Line) -> None:
        line[place] = value

    return spoilt


def turn(line: Line) -> None:
    """Turn the decision it is filed under."""
    line[DECISION] = "allow" if line[DECISION] == "deny" else "deny"


def turn_altogether(line: Line) -> None:
    """Turn the decision, and what it says of it."""
    turn(line)
    line[SAID]["decision"] = line[DECISION]


def say_otherwise(line: Line) -> None:
    """Change what it says came of it."""
    line[SAID]["outcome"] = "error"


def rename(line: Line) -> None:
    """Change what was called, wherever it stands."""
    line[CAPABILITY] = line[SAID]["capability"] = "other"


def forge(line: Line) -> None:
    """Change what it says and make its own digest up; it is not known where it stands."""
    line[SAID]["outcome"] = "error"
    line[DIGEST] = hashlib.sha256(msgspec.json.encode(line[SAID])).hexdigest()
