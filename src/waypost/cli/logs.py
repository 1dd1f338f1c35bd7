"""Logs on stderr: one JSON object a line for programs, plain text at a terminal."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from waypost.cli.command import escape_control
from waypost.redaction import redacted


class JsonLines(logging.Formatter):
    """A log record as one line of JSON, with secrets redacted."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


class PlainText(logging.Formatter):
    """A log record as plain text, with secrets redacted and control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the line, with a traceback below it."""
        time = self.formatTime(record, "%H:%M:%S")
        lines = [f"{time} {record.levelname.lower()}: {redacted(record.getMessage())} ({record.name})"]
        if record.exc_info:
            lines += redacted(self.formatException(record.exc_info)).splitlines()
        return "\n".join(map(escape_control, lines))


LEVELS: Final = ("debug", "info", "warning", "error")


def log_to_stderr(level: str = "info") -> None:
    """Write log records of a level and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainText() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper())
