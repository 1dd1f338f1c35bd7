"""Problems of a database after a crash, judged by its rows and by the acknowledged writes."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from tests.chaos.load import SCOPE, Acknowledgement

Rows = Callable[[str], Sequence[Sequence[Any]]]


def in_file(path: Path, message: Iterable[Acknowledgement]) -> list[str]:
    """Problems of a SQLite file; opening it for this recovers it from the crash, as every opener does."""
    with closing(apsw.Connection(str(path))) as connection:
        (found,) = connection.execute("PRAGMA integrity_check").fetchall()
        if found != ("ok",):
            return [f"The file is damaged: {found}"]
        return in_rows(lambda text: connection.execute(text).fetchall(), message)


def in_copy(path: Path, message: Iterable[Acknowledgement]) -> list[str]:
    """Problems of a SQLite file, found in a copy, so that the file is still unrecovered for its next opener."""
    copy = path.with_name("copy.db")
    for ending in ("", "-wal"):
        source = path.with_name(path.name + ending)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + ending))
    try:
        return in_file(copy, message)
    finally:
        for left in path.parent.glob("copy.db*"):
            left.unlink()


def in_rows(rows: Rows, message: Iterable[Acknowledgement]) -> list[str]:
    """Problems of the rows, with either engine."""
    known = list(message)
    return [*_histories(rows), *_instances(rows, known), *_once(rows), *_values(rows, known), *_jobs(rows, known)]


def _histories(rows: Rows) -> list[str]:
    """A history is whole: versions from 1 to the instance's own without a gap, and nothing was done twice."""
    versions: defaultdict[str, list[int]] = defaultdict(list)
    marks: Counter[str] = Counter()
    for instance, version, body in rows("SELECT instance, version, body FROM history ORDER BY instance, version"):
        versions[instance].append(version)
        marks[body] += 1
    current: dict[str, int] = {row[0]: row[1] for row in rows("SELECT id, version FROM instances")}
    wrong = [f"{mark} was done {times} times." for mark, times in marks.items() if times > 1]
    for instance in versions.keys() | current.keys():
        expected = list(range(1, current.get(instance, 0) + 1))
        if versions[instance] != expected:
            wrong.append(f"{instance} is at {current.get(instance)}, its history has {versions[instance]}.")
    return wrong


def _instances(rows: Rows, known: Sequence[Acknowledgement]) -> list[str]:
    there = {(row[0], row[1]): json.loads(row[2]) for row in rows("SELECT instance, version, body FROM history")}
    moves = [one for one in known if one.what in ("instance", "once")]
    return [
        f"{one} was acknowledged, the history says {there.get((one.key, one.version))}."
        for one in moves
        if there.get((one.key, one.version)) != one.mark
    ]


def _once(rows: Rows) -> list[str]:
    """A request and the instance it started are both stored, or neither is."""
    requests = {row[0]: row[1] for row in rows(f"SELECT key, answer FROM requests WHERE scope = '{SCOPE}'")}
    starts = {row[0]: row[1] for row in rows("SELECT instance, body FROM history WHERE version = 1")}
    odd = {key for key in starts if not key.startswith("shared-") and int(key.rpartition("-")[2]) % 2}
    return [f"{key} was started, or remembered, but not both." for key in odd ^ requests.keys()] + [
        f"{key} was started by {starts[key]}, {requests[key]} is remembered."
        for key in odd & requests.keys()
        if starts[key] != requests[key]
    ]


def _values(rows: Rows, known: Sequence[Acknowledgement]) -> list[str]:
    there = {row[0]: (row[1], json.loads(row[2])) for row in rows("SELECT key, version, value FROM state")}
    wrong = []
    for one in known:
        if one.what == "state":
            version, mark = there.get(one.key, (0, ""))
            if version < one.version or (version == one.version and mark != one.mark):
                wrong.append(f"{one} was acknowledged, version {version} by {mark} is there.")
    return wrong


def _jobs(rows: Rows, known: Sequence[Acknowledgement]) -> list[str]:
    there = {f"{row[0]}/{row[1]}" for row in rows("SELECT queue, id FROM jobs")}
    by_kind: defaultdict[str, set[str]] = defaultdict(set)
    for one in known:
        by_kind[one.what].add(one.key)
    lost = by_kind["job"] - by_kind["removing"] - there
    back = by_kind["removed"] & there
    return [f"The job {key} was lost." for key in lost] + [f"The job {key} came back." for key in back]
