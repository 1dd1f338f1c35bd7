import json
import logging
import sys

import pytest

from waypost.cli.logs import JsonLines, PlainText, log_to_stderr


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


def test_a_record_of_a_failure_has_its_traceback() -> None:
    entry = json.loads(JsonLines().format(record("it failed", failed=True)))
    assert entry["exception"].endswith("ValueError: broken")


def test_secrets_are_redacted_in_the_message_and_the_traceback() -> None:
    try:
        raise ValueError("password=hunter2hunter2")
    except ValueError:
        problem = sys.exc_info()
    answer = logging.LogRecord("x", logging.ERROR, "file.py", 1, "sent Bearer %s", ("abcdef123456",), problem)

    entry = json.loads(JsonLines().format(answer))

    assert entry["message"] == "sent Bearer [REDACTED]"
    assert entry["exception"].endswith("ValueError: password=[REDACTED]")


@pytest.mark.parametrize("formatter", [JsonLines(), PlainText()])
def test_secrets_of_the_configuration_are_redacted(formatter: JsonLines | PlainText) -> None:
    secrets = ["plain words"]
    formatter.secrets = lambda: secrets
    assert "said plain" not in formatter.format(record("said plain words"))
    secrets[:] = ["broken"]  # as after a reload
    shown = formatter.format(record("said plain words", failed=True))
    assert "said plain words" in shown
    assert "ValueError: [REDACTED]" in shown


def test_plain_text_is_a_line_followed_by_the_traceback() -> None:
    first, *rest = PlainText().format(record("it failed", failed=True)).splitlines()

    assert first[8:] == " warning: it failed (waypost.test)"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: broken"


def test_plain_text_has_no_secrets_and_no_control_characters() -> None:
    shown = PlainText().format(record("sent Bearer %s\x1b[2J\r\n", "abcdef123456"))

    assert shown[8:] == r" warning: sent Bearer [REDACTED]\x1b[2J\r\n (waypost.test)"


@pytest.mark.parametrize(("terminal", "formatter"), [(True, PlainText), (False, JsonLines)])
def test_a_terminal_gets_text_and_everything_else_json(
    terminal: bool, formatter: type[logging.Formatter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)

    log_to_stderr()

    (handler,) = root.handlers
    assert type(handler.formatter) is formatter
