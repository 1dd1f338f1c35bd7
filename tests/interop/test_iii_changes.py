"""Subscribers of changes with the SDKs of the iii project: each is told once, and keeps nobody waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.iii_desk import Publisher, publishing
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher

pytestmark = pytest.mark.timeout(120)

PROMPT = {"description": "Greet.", "function_id": "mine::greet"}


@pytest.fixture
def follower(publisher: Publisher) -> Publisher:
    """A worker that hears of both kinds of changes."""
    publisher.follow("skills::on-change", "mine::skills")
    publisher.follow("prompts::on-change", "mine::prompts")
    return publisher


def test_skills_register_fires(follower: Publisher) -> None:
    follower.call("skills::register", id="brain", skill="# Brain")
    assert follower.heard("mine::skills") == [{"op": "register", "id": "brain"}]
    assert follower.heard("mine::prompts") == []


def test_skills_unregister_fires(follower: Publisher) -> None:
    follower.call("skills::register", id="brain", skill="# Brain")
    follower.call("skills::unregister", id="brain")
    follower.call("skills::unregister", id="brain")
    told = [{"op": "register", "id": "brain"}, {"op": "unregister", "id": "brain"}]
    assert follower.heard("mine::skills") == told


def test_3_rapid_mutations_each_notify(follower: Publisher) -> None:
    for number in range(3):
        follower.call("skills::register", id="brain", skill=f"# Brain {number}")
    assert follower.heard("mine::skills") == [{"op": "register", "id": "brain"}] * 3


def test_prompts_register_fires(follower: Publisher) -> None:
    follower.call("prompts::register", name="greet", **PROMPT)
    assert follower.heard("mine::prompts") == [{"op": "register", "name": "greet"}]
    assert follower.heard("mine::skills") == []


def test_prompts_unregister_fires(follower: Publisher) -> None:
    follower.call("prompts::unregister", name="greet")
    follower.call("prompts::register", name="greet", **PROMPT)
    follower.call("prompts::unregister", name="greet")
    assert follower.heard("mine::prompts")[1:] == [{"op": "unregister", "name": "greet"}]


def test_what_is_refused_tells_nobody(follower: Publisher) -> None:
    follower.refusal("skills::register", id="Brain", skill="# Brain")
    follower.refusal("skills::register", id="brain", skill="")
    follower.refusal("prompts::register", name="Greet", **PROMPT)
    assert follower.heard("mine::skills") == follower.heard("mine::prompts") == []


def test_who_follows_no_more_is_told_nothing(publisher: Publisher) -> None:
    publisher.follow("skills::on-change", "mine::skills")
    publisher.call("skills::register", id="brain", skill="# Brain")
    publisher.unfollow("skills::on-change", "mine::skills")
    publisher.call("skills::unregister", id="brain")
    assert publisher.heard("mine::skills") == [{"op": "register", "id": "brain"}]


def test_a_subscriber_that_hangs_fails_or_is_dead_keeps_no_registration_waiting(
    publisher: Publisher, tmp_path: Path
) -> None:
    publisher.follow("skills::on-change", "mine::hanging", "hang")
    publisher.follow("skills::on-change", "mine::failing", "fail")
    publisher.follow("skills::on-change", "mine::skills")
    with publishing("python", publisher.address, tmp_path, "mortal") as mortal:
        mortal.follow("skills::on-change", "mortal::skills")
        publisher.call("skills::register", id="brain", skill="# Brain")
        assert mortal.wait_for("mortal::skills") == {"op": "register", "id": "brain"}
        mortal.kill()
        for number in range(20):
            publisher.call("skills::register", id=f"brain/{number}", skill="# Brain")
    assert len(publisher.heard("mine::skills")) == len(publisher.heard("mine::hanging")) == 21
