"""Logs for machines: one JSON object a line, on stderr."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

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


def log_to_stderr() -> None:
    """Send every log from `info` on to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
