"""Errors of the hub, as workers get them."""

from __future__ import annotations

import logging

import pytest

from waypost.errors import Busy, DeadlineExceeded, InvocationFailed, PolicyDenied, UnknownTool, WaypostError
from waypost.workers.frames import Failure, function_not_found, to_failure


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvocationFailed("m", "MINE", "at 1"), "MINE"),
        (PolicyDenied("m"), "FORBIDDEN"),
        (UnknownTool("m"), "function_not_found"),
        (DeadlineExceeded("m"), "TIMEOUT"),
        (Busy("m"), "invocation_error"),
        (WaypostError("m"), "invocation_error"),
    ],
)
def test_an_error_has_a_code_that_workers_know(error: WaypostError, code: str) -> None:
    assert to_failure(error) == Failure(code, "m", "at 1" if code == "MINE" else None)


def test_a_crash_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert to_failure(ValueError("odd")) == Failure("invocation_error", "ValueError: odd")
    assert "crashed" in caplog.text


def test_the_error_for_a_missing_function_names_its_namespace() -> None:
    failure = function_not_found("a::b", "blue")
    assert (failure.code, failure.message) == ("function_not_found", "Function a::b not found in namespace blue.")
