"""Diagrams of workflows."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings

from tests.workflows.checks.definitions import WORKFLOWS
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.workflows.graph import dot, mermaid, picture, svg

SVG = "{http://www.w3.org/2000/svg}"
DEPLOY = {
    "title": "Deploy Pipeline",
    "initialState": "lint",
    "timeoutMs": 3_600_000,
    "onTimeout": {"target": "aborted"},
    "states": {
        "lint": {"transitions": {"run_lint": {"target": "test"}}},
        "test": {
            "transitions": {
                "run_tests": {
                    "target": "build",
                    "branches": [{"when": {"kind": "expr", "expr": "$.context.tests == false"}, "target": "lint"}],
                },
                "retry": {"target": "test"},
            }
        },
        "build": {"transitions": {"make": {"target": "ready_to_deploy", "actor": "deterministic"}}},
        "ready_to_deploy": {
            "transitions": {
                "deploy": {"target": "deployed", "tags": ["dangerous"], "executor": {"kind": "human"}},
                "approve": {"target": "deployed", "actor": "human"},
                "abort": {"target": "aborted"},
                "again": {"target": "test"},
            }
        },
        "deployed": {"terminal": True},
        "aborted": {"terminal": True},
    },
}
DIGEST = {
    "steps": [
        {
            "name": "collect",
            "skill": "rss",
            "routes": [{"branch": "on_items", "goto": "sum"}, {"branch": "on_error", "goto": 3}],
        },
        {"name": "sum", "skill": "llm"},
        {"capability": "mail.send"},
    ]
}


def workflow(data: dict[str, Any]) -> Workflow:
    return convert(data, Workflow)


def test_mermaid_has_states_transitions_and_ends() -> None:
    assert mermaid(workflow(DEPLOY)) == (
        "stateDiagram-v2\n"
        "    lint\n"
        "    test\n"
        "    build\n"
        "    ready_to_deploy\n"
        "    deployed\n"
        "    aborted\n"
        '    state "any state" as any\n'
        "    [*] --> lint\n"
        "    lint --> test : run_lint\n"
        "    test --> lint : run_tests if $.context.tests == false\n"
        "    test --> build : run_tests otherwise\n"
        "    test --> test : retry\n"
        "    build --> ready_to_deploy : make (auto)\n"
        "    ready_to_deploy --> deployed : deploy (approval)\n"
        "    ready_to_deploy --> deployed : approve (human)\n"
        "    ready_to_deploy --> aborted : abort\n"
        "    ready_to_deploy --> test : again\n"
        "    any --> aborted : after 1 h\n"
        "    deployed --> [*]\n"
        "    aborted --> [*]\n"
    )


def test_mermaid_shows_steps_and_routes() -> None:
    assert mermaid(workflow(DIGEST)) == (
        "stateDiagram-v2\n"
        '    state "1. collect#58; rss" as s1\n'
        '    state "2. sum#58; llm" as s2\n'
        '    state "3. mail.send" as s3\n'
        '    state "end" as finish\n'
        "    [*] --> s1\n"
        "    s1 --> s2 : on_items\n"
        "    s1 --> s3 : on_error\n"
        "    s1 --> finish : otherwise\n"
        "    s2 --> s3\n"
        "    s3 --> finish\n"
        "    finish --> [*]\n"
    )


@pytest.mark.parametrize("name", ["end", "two words", 'quo"te', "a:b", "-->", "ü", "State"])
def test_mermaid_quotes_unusual_names(name: str) -> None:
    lines = mermaid(workflow({"initialState": name, "states": {name: {"terminal": True}}})).splitlines()
    assert lines[1].startswith('    state "')
    assert lines[2:] == ["    [*] --> s1", "    s1 --> [*]"]


def test_mermaid_ids_are_unique() -> None:
    text = mermaid(workflow({"initialState": "s1", "states": {"two words": {}, "s1": {"terminal": True}}}))
    assert 'state "two words" as s1' in text
    assert "[*] --> s2" in text


def test_the_current_state_is_highlighted() -> None:
    assert "class test current" in mermaid(workflow(DEPLOY), "test")
    assert 's2 [label="test", fillcolor=lightyellow, penwidth=3];' in dot(workflow(DEPLOY), "test")
    assert svg(workflow(DEPLOY), "test").count('class="box current"') == 1
    assert "current" not in mermaid(workflow(DEPLOY), "gone")
    assert "class s2 current" in mermaid(workflow(DIGEST), "sum")


def test_dot_marks_terminal_states_dangers_and_deterministic_transitions() -> None:
    text = dot(workflow(DEPLOY))
    assert text.startswith('digraph "Deploy Pipeline" {\n')
    assert 's5 [label="deployed", peripheries=2];' in text
    assert 's4 -> s5 [label="deploy (approval)", color=red];' in text
    assert 's3 -> s4 [label="make (auto)", style=dashed];' in text
    assert text.endswith("}\n")


def test_dot_escapes_names() -> None:
    text = dot(workflow({"initialState": 'a"\\', "states": {'a"\\': {"terminal": True}}}))
    assert r'label="a\"\\"' in text


# svg


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def areas(text: str, kind: str | None) -> list[Area]:
    found = []
    for rect in ElementTree.fromstring(text).iter(f"{SVG}rect"):
        if "x" in rect.attrib and (rect.get("class") or "").split()[:1] == ([kind] if kind else []):
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            found.append(Area(x, y, x + width, y + height))
    return found


def texts(text: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_svg_shows_every_state_and_transition() -> None:
    shown = texts(svg(workflow(DEPLOY)))
    assert {"Deploy Pipeline", "lint", "deployed", "run_lint", "retry", "approve (human)", "after 1 h"} <= set(shown)
    assert svg(workflow(DEPLOY)).count('class="inner"') == 2


def assert_nothing_overlaps(text: str) -> None:
    everything = [*areas(text, "box"), *areas(text, None)]
    for index, one in enumerate(everything):
        for other in everything[:index]:
            assert not one.overlaps(other), (one, other)


@pytest.mark.parametrize("data", [DEPLOY, DIGEST], ids=["states", "steps"])
def test_no_labels_or_boxes_overlap(data: dict[str, Any]) -> None:
    text = svg(workflow(data))
    assert len(areas(text, "box")) >= 4
    assert_nothing_overlaps(text)


def test_no_line_crosses_a_box() -> None:
    text = svg(workflow(DEPLOY))
    boxes = areas(text, "box")
    for path in re.findall(r'class="arrow[^"]*" d="([^"]+)"', text):
        points = [tuple(map(float, pair.split())) for pair in re.findall(r"-?[\d.]+ -?[\d.]+", path)]
        for x, y in points[1:-1]:
            assert not any(box.left < x < box.right and box.top < y < box.bottom for box in boxes), path


def test_an_arrow_back_points_up() -> None:
    text = svg(workflow({"initialState": "a", "states": {
        "a": {"transitions": {"go": {"target": "b"}}},
        "b": {"transitions": {"back": {"target": "a"}}},
    }}))  # fmt: skip
    down, up, _start = re.findall(r'd="M-?[\d.]+ (-?[\d.]+).*?(-?[\d.]+)" stroke', text)
    assert float(down[0]) < float(down[1])
    assert float(up[0]) > float(up[1])


def test_svg_escapes_names() -> None:
    name = "<script>&\"'\x00"
    text = svg(workflow({"title": name, "initialState": name, "states": {name: {"terminal": True}}}), name)
    assert "<script>" not in text
    assert "<script>&\"' " in texts(text)


def test_an_empty_workflow_can_be_drawn() -> None:
    for draw in (mermaid, dot, svg):
        assert draw(Workflow())


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(WORKFLOWS)
def test_any_definition_can_be_drawn(data: dict[str, Any]) -> None:
    drawn = workflow(data)
    assert mermaid(drawn, "a").startswith("stateDiagram-v2\n")
    assert dot(drawn, "a").endswith("}\n")
    assert_nothing_overlaps(svg(drawn, "a"))


LONG = "a_transition_with_a_name_that_is_longer_than_the_label_of_an_arrow"
WAYS = {
    "initialState": "draft",
    "timeoutMs": 60_000,
    "onTimeout": {"target": "expired"},
    "states": {
        "draft": {
            "transitions": {
                "send": {"target": "sent", "actor": "system"},
                "send_again": {"target": "sent", "actor": "system"},
                LONG: {"target": "sent"},
            }
        },
        "sent": {"terminal": True},
        "expired": {"terminal": True},
    },
}


@pytest.mark.parametrize(
    ("move", "target"),
    [("send", "sent"), ("send_again", "sent"), (LONG, "sent"), ("$timeout", "expired")],
)
def test_of_all_arrows_only_the_one_that_an_instance_took_is_marked(move: str, target: str) -> None:
    shown = picture(workflow(WAYS), target, [(None, "$start", "draft"), ("draft", move, target)])

    assert [arrow.transition for arrow in shown.arrows if arrow.is_taken] == [move]
    assert {box.state for box in shown.boxes if box.id in shown.visited} == {"draft", target}
