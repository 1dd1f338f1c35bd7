"""The text of a failed call, without secrets."""

from __future__ import annotations

import pytest

from waypost import InvocationFailed, ToolError
from waypost.execution.pipeline import error_result
from waypost.workers.frames import to_failure

TEXT = "password=hunter2hunter2 and tangerine"


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (RuntimeError(TEXT), "Tool crashed: RuntimeError: password=[REDACTED] and [REDACTED]"),
        (InvocationFailed(TEXT), "password=[REDACTED] and [REDACTED]"),
        (ToolError(TEXT), "password=hunter2hunter2 and [REDACTED]"),
    ],
    ids=["crash", "worker", "chosen"],
)
def test_a_crash_text_is_redacted_and_a_tool_error_loses_only_configured_secrets(error: Exception, answer: str) -> None:
    result = error_result("tool", error, ("tangerine",))

    assert (result.text, result.is_error) == (answer, True)


def test_secrets_in_a_crash_are_redacted_for_workers() -> None:
    assert to_failure(ValueError(TEXT)).message == "ValueError: password=[REDACTED] and tangerine"
