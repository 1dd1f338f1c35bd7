"""Logs on stderr: one JSON object a line for programs, plain text at a terminal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from waypost.cli.command import escape_control
from waypost.redaction import redacted


class RedactingFormatter(logging.Formatter):
    """A log record without secrets: those of the configuration, and what looks like one."""

    secrets: Callable[[], Iterable[str]] = tuple
    """The secrets of the configuration, which a reload may change."""

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return redacted(text, self.secrets())


class JsonLines(RedactingFormatter):
    """A log record as one line of JSON, with secrets redacted."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.redact(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = self.redact(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False)


class PlainText(RedactingFormatter):
    """A log record as plain text, with secrets redacted and control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the line, with a traceback below it."""
        time = self.formatTime(record, "%H:%M:%S")
        lines = [f"{time} {record.levelname.lower()}: {self.redact(record.getMessage())} ({record.name})"]
        if record.exc_info:
            lines += self.redact(self.formatException(record.exc_info)).splitlines()
        return "\n".join(map(escape_control, lines))


LEVELS: Final = ("debug", "info", "warning", "error")


def log_to_stderr(level: str = "info") -> RedactingFormatter:
    """Write log records of a level and above to stderr; returns what formats them."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = PlainText() if sys.stderr.isatty() else JsonLines()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level.upper())
    return formatter
