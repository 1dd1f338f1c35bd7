"""Logs on stderr: for machines one JSON object a line, for people at a terminal plain text."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from waypost.cli.client import visible
from waypost.redaction import redacted


class JsonLines(logging.Formatter):
    """A log record as one line of JSON, without what looks like a secret."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """A log record as people read it, without what looks like a secret, or would move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it."""
        time = self.formatTime(record, "%H:%M:%S")
        lines = [f"{time} {record.levelname.lower()}: {redacted(record.getMessage())} ({record.name})"]
        if record.exc_info:
            lines += redacted(self.formatException(record.exc_info)).splitlines()
        return "\n".join(map(visible, lines))


def log_to_stderr() -> None:
    """Send every log from `info` on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainText() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
