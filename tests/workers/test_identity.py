"""Which worker a connection is: the tokens that prove it, the name that it keeps, and the functions of its own."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.protocol.conftest import asynchronous, until
from tests.workers.wire import Wire, address, at_work, hub_for_workers, wired
from waypost import Hub
from waypost.capabilities.principals import ANONYMOUS
from waypost.identity import Authentication, Key, digest
from waypost.policy.rules import Rule

KEYS = [Key("alice", digest("key"))]


def closed_hub(**workers: Any) -> Hub:
    """A hub whose callers need a key."""
    return hub_for_workers(auth=Authentication(KEYS), workers={"port": 0, **workers})


def bearer(token: str | None) -> dict[str, Any]:
    """The options of a connection with a token."""
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def status(hub: Hub, **options: Any) -> int:
    """How the port answers a handshake."""
    try:
        async with dial(address(hub), **options):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def owner_of(hub: Hub, function: str) -> str | None:
    """The name of the worker that offers a function."""
    found = hub.workers.functions.get("default", function)
    return None if found is None or found.owner is None else found.owner.name


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (Authentication(KEYS), 401),
        (Authentication(anonymous=False), 401),
        (Authentication(KEYS, anonymous=ANONYMOUS), 401),
        (Authentication(), 101),
        (None, 101),
    ],
    ids=["keys", "no anonymous", "keys and anonymous", "nothing named", "no auth"],
)
def test_workers_need_a_token_as_soon_as_callers_are_authenticated(auth: Authentication | None, expected: int) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(auth=auth)
        async with at_work(hub):
            assert await status(hub) == expected
            assert await status(hub, **bearer("guess")) == expected
            assert hub.workers.made_token
            assert await status(hub, **bearer(hub.workers.made_token)) == 101

    scenario()


@asynchronous
async def test_a_hub_that_gets_its_first_key_while_it_runs_has_a_token_for_workers_already() -> None:
    auth = Authentication()
    hub = hub_for_workers(auth=auth)
    async with at_work(hub):
        token = hub.runtime.worker_token  # `waypost serve` writes it to `hub.json` once, at the start
        assert await status(hub) == 101
        auth.keys.add(KEYS[0])
        assert await status(hub) == 401
        assert await status(hub, **bearer(token)) == 101


@asynchronous
async def test_a_configured_token_replaces_the_generated_one() -> None:
    hub = closed_hub(token="mine")
    async with at_work(hub):
        assert hub.workers.made_token is None
        assert await status(hub, **bearer("")) == 401
        assert await status(hub, **bearer("mine")) == 101


@asynchronous
async def test_a_token_of_a_name_proves_that_name_and_no_other_token_has_it() -> None:
    hub = closed_hub(token="shared", tokens={"billing": "own"})
    async with at_work(hub), wired(hub, **bearer("own")) as billing:
        await billing.offer("billing::pay", name="somebody else")
        assert owner_of(hub, "billing::pay") == "billing"
        async with wired(hub, **bearer("shared")) as other:
            await other.send(
                "invokefunction",
                function_id="engine::workers::register",
                data={"name": "billing"},
                action={"type": "void"},
            )
            with pytest.raises(ConnectionClosed):
                await other.next("pong")
        await until(lambda: [worker.name for worker in hub.workers.connected] == ["billing"])


@asynchronous
async def test_where_every_worker_has_a_token_of_its_own_no_other_is_accepted() -> None:
    hub = closed_hub(tokens={"billing": "own"})
    async with at_work(hub):
        assert hub.workers.made_token is None
        assert await status(hub) == 401
        assert await status(hub, **bearer("")) == 401
        assert await status(hub, **bearer("own")) == 101


@asynchronous
async def test_a_worker_keeps_the_name_of_its_first_introduction() -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["engine::*"]}, principals=("worker:bad",))
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub), wired(hub) as good, wired(hub) as bad:
        await good.offer("a::b", name="good")
        await bad.introduce("bad")
        assert (await bad.error("a::b"))["code"] == "FORBIDDEN"
        await bad.introduce("good")
        assert [worker.name for worker in hub.workers.connected] == ["good", "bad"]
        assert (await bad.error("a::b"))["code"] == "FORBIDDEN"
        refused = await bad.error("skills::register", {"id": "x", "skill": "# X\n"})
        assert refused["code"] == "FORBIDDEN"


async def offer(wire: Wire, name: str, **about: Any) -> None:
    """Offer `a::b` under a name."""
    await wire.send("registerfunction", id="a::b")
    await wire.introduce(name, **about)


@asynchronous
async def test_a_function_stays_with_the_worker_that_offered_it_first() -> None:
    hub = closed_hub()
    async with at_work(hub):
        token = bearer(hub.workers.made_token)
        async with wired(hub, **token) as first, wired(hub, **token) as other, wired(hub, **token) as copy:
            for wire, name in ((first, "first"), (other, "other"), (copy, "first")):
                await offer(wire, name)
            await other.next("registrationrejected", function_id="a::b")
            await copy.next("registrationrejected", function_id="a::b")
            await first.socket.close()
            # The copy of the same name takes over, although the other worker has waited longer.
            await until(lambda: owner_of(hub, "a::b") == "first")
            await copy.socket.close()
            await until(lambda: owner_of(hub, "a::b") is None)
            await other.send("registerfunction", id="a::b")
            await other.next("registrationrejected", function_id="a::b")
            assert owner_of(hub, "a::b") is None
        async with wired(hub, **token) as again, wired(hub, **token) as other:
            await offer(again, "first")
            await until(lambda: owner_of(hub, "a::b") == "first")
            await again.send("unregisterfunction", id="a::b")
            await again.settled()
            await offer(other, "other")
            await until(lambda: owner_of(hub, "a::b") == "other")


@asynchronous
async def test_a_worker_with_the_default_name_of_the_sdks_is_known_after_a_restart() -> None:
    hub = closed_hub()
    async with at_work(hub):
        token = bearer(hub.workers.made_token)
        async with wired(hub, **token) as before:
            await offer(before, "machine:12", pid=12)
            await until(lambda: owner_of(hub, "a::b") == "machine:12")
        async with wired(hub, **token) as after:
            await offer(after, "machine:34", pid=34)
            await until(lambda: owner_of(hub, "a::b") == "machine:34")


@pytest.mark.parametrize("about", [{"share": True}, {}])
def test_with_share_or_without_auth_any_worker_may_take_over(about: dict[str, Any]) -> None:
    @asynchronous
    async def scenario() -> None:
        hub = closed_hub(**about) if about else hub_for_workers()
        async with at_work(hub):
            token = bearer(hub.workers.made_token)
            async with wired(hub, **token) as first, wired(hub, **token) as other:
                await offer(first, "first")
                await offer(other, "other")
                await other.next("registrationrejected", function_id="a::b")
                await first.socket.close()
                await until(lambda: owner_of(hub, "a::b") == "other")

    scenario()


@asynchronous
async def test_a_trigger_type_passes_only_to_a_worker_of_the_same_name() -> None:
    hub = closed_hub()
    async with at_work(hub):
        token = bearer(hub.workers.made_token)
        async with wired(hub, **token) as first, wired(hub, **token) as other:
            for wire, name in ((first, "first"), (other, "other")):
                await wire.introduce(name)
                await wire.send("registertriggertype", id="t::x", description="")
                await wire.settled()
            await other.next("triggerregistrationresult", id="t::x")
            await first.socket.close()
            await until(lambda: not [kind for kind in hub.workers.triggers.types if kind.worker is not None])


@asynchronous
async def test_a_document_of_a_worker_with_its_own_token_stays_its_own_while_it_is_away() -> None:
    hub = closed_hub(token="shared", tokens={"mailer": "own"})
    document = {"id": "mail", "skill": "# Mail\n\nHow to mail.\n"}
    async with at_work(hub), wired(hub, **bearer("shared")) as other:
        await other.introduce("other")
        async with wired(hub, **bearer("own")) as mailer:
            await mailer.introduce("mailer")
            await mailer.result("skills::register", document)
        await until(lambda: len(hub.workers.connected) == 1)
        refused = await other.error("skills::register", {**document, "skill": "# Mine\n"})
        assert "belongs to worker:mailer" in refused["message"]


@pytest.mark.parametrize(
    ("hub", "features"),
    [
        (lambda: closed_hub(token="t"), None),
        (lambda: closed_hub(token="t", observe=True), ["observe.v1"]),
        (lambda: hub_for_workers(workers={"port": 0, "token": "t"}), ["observe.v1"]),
        (lambda: hub_for_workers(workers={"port": 0, "token": "t", "observe": False}), None),
    ],
)
def test_beside_auth_workers_observe_calls_only_where_the_operator_says_so(hub: Any, features: Any) -> None:
    @asynchronous
    async def scenario() -> None:
        made = hub()
        async with at_work(made), dial(address(made), **bearer("t")) as socket:
            greeting = await Wire(socket).next("workerregistered")
            assert greeting.get("features") == features

    scenario()


@asynchronous
async def test_a_worker_that_says_its_namespace_late_leaves_nothing_of_its_own_in_the_default_one() -> None:
    hub = closed_hub()
    async with at_work(hub):
        token = bearer(hub.workers.made_token)
        async with wired(hub, **token) as slow, wired(hub, **token) as other:
            await slow.send("registerfunction", id="a::b")
            await until(lambda: hub.workers.functions.get("default", "a::b") is not None)
            await slow.introduce("slow", namespace="blue")
            await offer(other, "other")
            await until(lambda: owner_of(hub, "a::b") == "other")
