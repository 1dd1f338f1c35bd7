"""Publishing skills with the SDKs of the iii project: the scenarios of its registry, through `trigger`."""

from __future__ import annotations

import pytest

from tests.interop.iii_desk import Publisher, Scenario, call, scenarios
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher

pytestmark = pytest.mark.timeout(120)

LARGEST = 262_144
REGISTER, LIST, READ, REMOVE = "skills::register", "skills::list", "skills::resources-read", "skills::unregister"
LETTERS = "may only contain lowercase ASCII letters, digits, '-' and '_'"


def refused(name: str, skill_id: str, text: str, skill: str = "# x") -> Scenario:
    """A scenario with a refused skill, which is not registered."""
    steps = (call(REGISTER, fails=text, id=skill_id, skill=skill), call(LIST, {"skills": []}))
    return Scenario(name, steps)


def text_at(uri: str, text: str) -> dict[str, object]:
    """The expected answer of reading a skill."""
    return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]}


@scenarios(
    refused("rejects an empty id", "", "id must be non-empty"),
    refused("rejects uppercase id", "Brain", f"segment {LETTERS}: "),
    refused("rejects id with a space", "my brain", f"segment {LETTERS}: "),
    refused("rejects leading slash", "/brain", "id may not have a leading or trailing '/': \"/brain\""),
    refused("rejects trailing slash", "brain/", "id may not have a leading or trailing '/': \"brain/\""),
    refused("rejects doubled slash", "a//b", 'invalid id (segment 2 of "a//b"): segment must be non-empty'),
    refused("rejects colon", "a::b", f'invalid id (segment 1 of "a::b"): segment {LETTERS}'),
    refused("rejects 65-char id", "a" * 65, "segment too long (65 chars; max 64)"),
    refused("rejects empty body", "brain", "skill must be non-empty", ""),
    refused(
        "rejects body bigger than 256 KiB",
        "brain",
        f"skill body too large (262145 bytes; max {LARGEST})",
        "x" * (LARGEST + 1),
    ),
    Scenario(
        "accepts a body right at 256 KiB",
        (
            call(REGISTER, {"id": "brain"}, id="brain", skill="x" * LARGEST),
            call(LIST, {"skills": [{"id": "brain", "bytes": LARGEST}]}),
        ),
    ),
    Scenario(
        "register then list shows the scoped skill",
        (
            call(REGISTER, {"id": "brain", "registered_at": str}, id="brain", skill="# Brain\n"),
            call(LIST, {"skills": [{"id": "brain", "bytes": 8, "registered_at": str}]}),
        ),
        then=lambda answers: answers[0]["registered_at"] == answers[1]["skills"][0]["registered_at"],
    ),
    Scenario(
        "re-register overwrites the body and refreshes the timestamp",
        (
            call(REGISTER, id="brain", skill="# One"),
            call(REGISTER, id="brain", skill="# Two"),
            call(READ, text_at("iii://brain", "# Two"), uri="iii://brain"),
            call(LIST, {"skills": [{"id": "brain"}]}),
        ),
        then=lambda answers: (
            answers[0]["registered_at"] < answers[1]["registered_at"] == answers[3]["skills"][0]["registered_at"]
        ),
    ),
    Scenario(
        "unregister is idempotent",
        (
            call(REGISTER, id="brain", skill="# One"),
            call(REMOVE, {"id": "brain", "removed": True}, id="brain"),
            call(REMOVE, {"id": "brain", "removed": False}, id="brain"),
            call(LIST, {"skills": []}),
        ),
    ),
)
def test_skills_register(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)


TREE = (
    call(REGISTER, id="resend", skill="# resend\n\nEmail."),
    call(REGISTER, id="resend/email", skill="# resend/email\n\nFlows."),
    call(REGISTER, id="resend/email/send", skill="# send\n\nOutbound."),
)


@scenarios(
    Scenario(
        "single-level sub-skill resolves",
        (*TREE[:2], call(READ, text_at("iii://resend/email", "# resend/email\n\nFlows."), uri="iii://resend/email")),
    ),
    Scenario(
        "deep traversal depths 1/2/3",
        (
            *TREE,
            call(READ, text_at("iii://resend", "# resend\n\nEmail."), uri="iii://resend"),
            call(READ, text_at("iii://resend/email", "# resend/email\n\nFlows."), uri="iii://resend/email"),
            call(READ, text_at("iii://resend/email/send", "# send\n\nOutbound."), uri="iii://resend/email/send"),
        ),
    ),
    Scenario(
        "orphan grandchild readable",
        (
            TREE[2],
            call(READ, text_at("iii://resend/email/send", "# send\n\nOutbound."), uri="iii://resend/email/send"),
            call(READ, fails="Skill not found: resend/email", uri="iii://resend/email"),
        ),
    ),
    Scenario(
        "skills::list nested entries sorted",
        (
            *reversed(TREE),
            call(LIST, {"skills": [{"id": "resend"}, {"id": "resend/email"}, {"id": "resend/email/send"}]}),
        ),
    ),
    Scenario(
        "index indents nested entries by depth",
        (*TREE, call(READ, uri="iii://skills")),
        then=lambda answers: answers[-1]["contents"][0]["text"].endswith(
            "- [`resend`](iii://resend) — resend — Email.\n"
            "  - [`resend/email`](iii://resend/email) — resend/email — Flows.\n"
            "    - [`resend/email/send`](iii://resend/email/send) — send — Outbound.\n"
        ),
    ),
    refused('id "fn" rejected "reserved"', "fn", "reserved as the iii://fn/ section-URI marker"),
    refused('id starting "fn/" rejected', "fn/brain", 'id may not have "fn" as its first segment'),
    Scenario(
        '"fn" at a non-first segment succeeds',
        (
            call(REGISTER, {"id": "docs/fn"}, id="docs/fn", skill="# fn"),
            call(REGISTER, {"id": "docs/fn-reference"}, id="docs/fn-reference", skill="# reference"),
            call(READ, text_at("iii://docs/fn", "# fn"), uri="iii://docs/fn"),
        ),
    ),
    Scenario(
        "iii://fn/{a}/{b} triggers a::b",
        (call(READ, text_at("iii://fn/mine/two", "# two"), uri="iii://fn/mine/two"),),
        {"mine::two": "# two"},
    ),
    Scenario(
        "iii://fn/{a}/{b}/{c} triggers a::b::c",
        (call(READ, text_at("iii://fn/mine/two/three", "# three"), uri="iii://fn/mine/two/three"),),
        {"mine::two::three": "# three"},
    ),
    Scenario(
        "skill::fetch concatenates bodies across depths",
        (
            *TREE,
            call(
                "skill::fetch",
                "# iii://resend\n\n# resend\n\nEmail.\n\n---\n\n# iii://resend/email/send\n\n# send\n\nOutbound.",
                uris=["iii://resend", "iii://resend/email/send"],
            ),
        ),
    ),
)
def test_skills_nested(publisher: Publisher, scenario: Scenario) -> None:
    publisher.play(scenario)
