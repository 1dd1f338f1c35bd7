import json
import logging
import sys

from waypost.cli.logs import JsonLines


def record(message: str, *args: object, failed: bool = False) -> logging.LogRecord:
    problem = None
    if failed:
        try:
            raise ValueError("broken")
        except ValueError:
            problem = sys.exc_info()
    return logging.LogRecord("waypost.test", logging.WARNING, "file.py", 1, message, args, problem)


def test_a_record_is_one_line_of_json() -> None:
    line = JsonLines().format(record("two\nlines of %s", "text"))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"]) == ("warning", "waypost.test", "two\nlines of text")
    assert "exception" not in entry


def test_a_failure_brings_its_traceback() -> None:
    entry = json.loads(JsonLines().format(record("it failed", failed=True)))
    assert entry["exception"].endswith("ValueError: broken")


def test_neither_the_message_nor_the_traceback_tells_a_secret() -> None:
    try:
        raise ValueError("password=hunter2hunter2")
    except ValueError:
        problem = sys.exc_info()
    told = logging.LogRecord("x", logging.ERROR, "file.py", 1, "sent Bearer %s", ("abcdef123456",), problem)

    entry = json.loads(JsonLines().format(told))

    assert entry["message"] == "sent Bearer [REDACTED]"
    assert entry["exception"].endswith("ValueError: password=[REDACTED]")
