"""Where sessions are remembered, so that a client can come back to one that ended or lived somewhere else."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

_KEPT: Final = 100_000
_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to bring a session back."""

    id: str
    version: str
    principal: str
    client_info: dict[str, Any]
    client_capabilities: dict[str, Any]
    log_level: int
    assigns: dict[str, Any]
    subscriptions: list[str]


class SessionStore(Protocol):
    """The port: one record per session id; the last save wins."""

    async def save(self, record: SessionRecord) -> None: ...
    async def load(self, session_id: str) -> SessionRecord | None: ...
    async def delete(self, session_id: str) -> None: ...


class MemorySessions:
    """Sessions of this process; the oldest are forgotten when there are too many."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._records: OrderedDict[str, SessionRecord] = OrderedDict()
        self._kept = kept

    async def save(self, record: SessionRecord) -> None:
        """Remember a session."""
        self._records[record.id] = record
        self._records.move_to_end(record.id)
        while len(self._records) > self._kept:
            self._records.popitem(last=False)

    async def load(self, session_id: str) -> SessionRecord | None:
        """The session, if it is remembered."""
        return self._records.get(session_id)

    async def delete(self, session_id: str) -> None:
        """Forget a session."""
        self._records.pop(session_id, None)


class FileSessions:
    """Sessions as files in a directory, one each, replaced as a whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def save(self, record: SessionRecord) -> None:
        """Write a session's file."""
        await asyncio.to_thread(self._save, record)

    async def load(self, session_id: str) -> SessionRecord | None:
        """Read a session's file; one that is missing or damaged is no session."""
        return await asyncio.to_thread(self._load, session_id)

    async def delete(self, session_id: str) -> None:
        """Remove a session's file."""
        file = self._file(session_id)
        if file is not None:
            await asyncio.to_thread(file.unlink, True)

    def _file(self, session_id: str) -> Path | None:
        return self._directory / f"{session_id}.json" if _ID.fullmatch(session_id) else None

    def _save(self, record: SessionRecord) -> None:
        file = self._file(record.id)
        if file is None:
            raise ValueError(f"{record.id!r} is no session id.")
        self._directory.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{secrets.token_hex(4)}")
        fresh.write_bytes(msgspec.json.encode(record))
        fresh.replace(file)

    def _load(self, session_id: str) -> SessionRecord | None:
        file = self._file(session_id)
        try:
            return None if file is None else msgspec.json.decode(file.read_bytes(), type=SessionRecord)
        except (OSError, msgspec.MsgspecError):
            return None
