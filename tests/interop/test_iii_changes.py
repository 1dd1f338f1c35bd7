"""Subscribers of changes with the SDKs of the iii project: each is notified once, and delays no other."""

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
    """A worker that is bound to both trigger types."""
    publisher.follow("skills::on-change", "mine::skills")
    publisher.follow("prompts::on-change", "mine::prompts")
    return publisher


def test_skills_register_fires(follower: Publisher) -> None:
    follower.call("skills::register", id="brain", skill="# Brain")
    assert follower.payloads_of("mine::skills") == [{"op": "register", "id": "brain"}]
    assert follower.payloads_of("mine::prompts") == []


def test_skills_unregister_fires(follower: Publisher) -> None:
    follower.call("skills::register", id="brain", skill="# Brain")
    follower.call("skills::unregister", id="brain")
    follower.call("skills::unregister", id="brain")
    answer = [{"op": "register", "id": "brain"}, {"op": "unregister", "id": "brain"}]
    assert follower.payloads_of("mine::skills") == answer


def test_3_rapid_mutations_each_notify(follower: Publisher) -> None:
    for number in range(3):
        follower.call("skills::register", id="brain", skill=f"# Brain {number}")
    assert follower.payloads_of("mine::skills") == [{"op": "register", "id": "brain"}] * 3


def test_prompts_register_fires(follower: Publisher) -> None:
    follower.call("prompts::register", name="greet", **PROMPT)
    assert follower.payloads_of("mine::prompts") == [{"op": "register", "name": "greet"}]
    assert follower.payloads_of("mine::skills") == []


def test_prompts_unregister_fires(follower: Publisher) -> None:
    follower.call("prompts::unregister", name="greet")
    follower.call("prompts::register", name="greet", **PROMPT)
    follower.call("prompts::unregister", name="greet")
    assert follower.payloads_of("mine::prompts")[1:] == [{"op": "unregister", "name": "greet"}]


def test_a_refused_registration_fires_no_trigger(follower: Publisher) -> None:
    follower.refusal("skills::register", id="Brain", skill="# Brain")
    follower.refusal("skills::register", id="brain", skill="")
    follower.refusal("prompts::register", name="Greet", **PROMPT)
    assert follower.payloads_of("mine::skills") == follower.payloads_of("mine::prompts") == []


def test_an_unbound_subscriber_is_not_called(publisher: Publisher) -> None:
    publisher.follow("skills::on-change", "mine::skills")
    publisher.call("skills::register", id="brain", skill="# Brain")
    publisher.unfollow("skills::on-change", "mine::skills")
    publisher.call("skills::unregister", id="brain")
    assert publisher.payloads_of("mine::skills") == [{"op": "register", "id": "brain"}]


def test_a_hanging_failing_or_dead_subscriber_does_not_delay_registrations(
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
    assert len(publisher.payloads_of("mine::skills")) == len(publisher.payloads_of("mine::hanging")) == 21
