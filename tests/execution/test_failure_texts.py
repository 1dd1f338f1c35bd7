"""What the text of a failed call tells, and what it does not."""

from __future__ import annotations

import pytest

from waypost import InvocationFailed, ToolError
from waypost.execution.pipeline import error_result
from waypost.workers.frames import to_failure

TEXT = "password=hunter2hunter2 and tangerine"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError(TEXT), "Tool crashed: RuntimeError: password=[REDACTED] and [REDACTED]"),
        (InvocationFailed(TEXT), "password=[REDACTED] and [REDACTED]"),
        (ToolError(TEXT), "password=hunter2hunter2 and [REDACTED]"),
    ],
    ids=["crash", "worker", "chosen"],
)
def test_a_crash_tells_no_secret_and_what_was_chosen_none_of_the_configuration(error: Exception, told: str) -> None:
    result = error_result("tool", error, ("tangerine",))

    assert (result.text, result.is_error) == (told, True)


def test_a_worker_is_told_of_a_crash_without_what_looks_like_a_secret() -> None:
    assert to_failure(ValueError(TEXT)).message == "ValueError: password=[REDACTED] and tangerine"
