"""Steps and their routes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workflows.checks.conftest import Checker


def steps(*given: dict[str, Any]) -> str:
    return json.dumps({"workflows": {"w": {"steps": list(given)}}})


def step(name: str, *routes: tuple[str, str | int], **more: Any) -> dict[str, Any]:
    return {"name": name, "skill": "x", "routes": [{"branch": b, "goto": to} for b, to in routes], **more}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("secnd", "there is no step `secnd`; did you mean `second`?"),
        (0, "there is no step 0; positions go from 1 to 2"),
        (3, "there is no step 3; positions go from 1 to 2"),
    ],
)
def test_a_step_is_named_by_name_or_position(reference: str | int, message: str, check: Checker) -> None:
    found = check.only(steps(step("first", ("on_ok", reference)), step("second")))
    assert (found.code, found.key, found.message) == ("WF040", "workflows.w.steps[0].routes[0].goto", message)

    found = check.only(steps(step("first"), step("second", input_from=reference)))
    assert (found.code, found.key, found.message) == ("WF040", "workflows.w.steps[1].input_from", message)


def test_a_step_without_a_name_has_the_name_of_its_skill(check: Checker) -> None:
    assert check(steps({"skill": "collect"}, {"skill": "report", "input_from": "collect"})) == []
    assert check.codes(steps({"skill": "collect"}, {"skill": "collect"})) == ["WF041"]


def test_a_step_cannot_take_input_from_a_step_that_has_not_run(check: Checker) -> None:
    assert check.codes(steps(step("a", input_from="a"), step("b", input_from="a"))) == ["WF045"]


def test_a_skipped_step_can_take_input_from_a_later_one(check: Checker) -> None:
    given = [step("a", ("default", "c")), step("b", ("default", "d"), input_from="c"), step("c", ("x", "b")), step("d")]
    assert check(steps(*given)) == []


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ([step("a", ("on_error", "a"))], ["WF044"]),
        ([step("a"), step("b"), step("c", ("on_error", 1))], ["WF044"]),
        # b was skipped, and continues to the end.
        ([step("a", ("default", "c")), step("b", ("default", "d")), step("c", ("on_error", "b")), step("d")], []),
        # b was skipped, but reaches c again.
        ([step("a", ("default", "c")), step("b"), step("c", ("on_error", "b"))], ["WF044"]),
        # b may be skipped, and ends when no route matches.
        ([step("a", ("x", "c"), ("y", "b")), step("b", ("z", "c")), step("c", ("on_error", "b"))], []),
        # A skipped step continues with the next one and ignores its routes.
        (
            [
                step("a", ("default", "c")),
                step("b", ("default", "c"), on_missing_skill="skip"),
                step("c", ("default", "b")),
            ],
            ["WF044"],
        ),
    ],
)
def test_a_route_back_that_always_repeats_a_step_is_a_warning(
    given: list[dict[str, Any]], codes: list[str], check: Checker
) -> None:
    found = check(steps(*given))
    assert [one.code for one in found] == codes
    assert {one.severity for one in found} <= {"warning"}


def test_a_step_cannot_have_both_a_skill_and_a_capability(check: Checker) -> None:
    found = check.only(steps({"skill": "a", "capability": "b"}))
    assert (found.code, found.key) == ("WF042", "workflows.w.steps[0].capability")
