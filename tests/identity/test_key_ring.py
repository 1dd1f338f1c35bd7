"""Keys that come and go while the hub runs: shown once, kept as hashes, refused the moment they are revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import NOW, Clock
from tests.protocol.conftest import asynchronous
from tests.stores.counted import CountedSqlite
from tests.transports.http.conftest import Web, browsing
from waypost import Context, Hub
from waypost.capabilities.principals import Principal
from waypost.errors import DefinitionError, StoreError, UnknownCapability, WaypostError
from waypost.identity import Authentication, Key, Keys, digest, new_key
from waypost.identity.key_ring import KeyEntry, KeyRing
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


class Ring:
    """A key ring and all it works with."""

    def __init__(self, store: Store, *configured: Key) -> None:
        self.clock = Clock()
        self.keys = Keys(configured, clock=self.clock)
        self.ring = KeyRing(self.keys, store, self.clock)

    def who(self, key: str) -> Principal | None:
        return self.keys.principal(key)


@asynccontextmanager
async def ring(*configured: Key) -> AsyncIterator[Ring]:
    store = Store(SqliteDatabase())
    yield Ring(store, *configured)
    await store.close()


@asynchronous
async def test_a_key_lets_its_principal_in_from_the_moment_it_is_made() -> None:
    async with ring() as one:
        key = await one.ring.create("ci", roles=["agent"], permissions=["deploy"], scopes=["read"])

        assert one.who(key) == Principal("ci", ("agent",), ("deploy",), ("read",))


@asynchronous
async def test_all_keys_are_listed_without_what_they_are() -> None:
    async with ring() as one:
        keys = [await one.ring.create(name, roles=["agent"]) for name in ("b", "a", "c")]
        await one.ring.revoke("b")
        entries = await one.ring.entries()

    assert [entry.id for entry in entries] == ["a", "b", "c"]
    assert [entry.revoked_at for entry in entries] == [None, NOW, None]
    shown = entries[0].shown()
    assert shown == {
        "id": "a",
        "hash": digest(keys[1])[:15] + "…",
        "roles": ("agent",),
        "permissions": (),
        "scopes": (),
        "expiresAt": None,
        "createdAt": NOW,
        "revokedAt": None,
    }


@asynchronous
async def test_more_keys_than_a_page_holds_are_listed_and_accepted() -> None:
    async with ring() as one:
        made = await asyncio.gather(*(one.ring.create(f"k{number:04}") for number in range(1005)))
        other = Ring(one.ring._store)
        await other.ring.refresh()

        assert len(await one.ring.entries()) == 1005
        assert all(other.who(key) is not None for key in made)


def test_the_store_has_the_hash_and_not_the_key(tmp_path: Path) -> None:
    async def make() -> str:
        store = Store(SqliteDatabase(tmp_path / "store.db"))
        key = await Ring(store).ring.create("ci")
        await store.close()
        return key

    key = asyncio.run(make())
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert digest(key).encode() in raw
    assert key.encode() not in raw
    assert key.removeprefix("wp_").encode() not in raw


@asynchronous
async def test_a_revoked_key_is_refused_at_once_and_stays_so() -> None:
    async with ring() as one:
        key = await one.ring.create("ci")
        await one.ring.revoke("ci")
        assert one.who(key) is None

        await one.ring.refresh()
        assert one.who(key) is None


@asynchronous
async def test_a_key_that_is_not_there_cannot_be_revoked() -> None:
    async with ring() as one:
        await one.ring.create("ci")
        await one.ring.revoke("ci")
        for name in ("ci", "nobody"):
            with pytest.raises(UnknownCapability, match=rf"^There is no key for {name} that could be revoked\.$"):
                await one.ring.revoke(name)


@asynchronous
async def test_there_is_one_key_for_each_id() -> None:
    async with ring() as one:
        key = await one.ring.create("ci")
        with pytest.raises(StoreError, match=r"^There is a key for ci already; revoke it first\.$"):
            await one.ring.create("ci", permissions=["deploy"])

        assert one.who(key) == Principal("ci")


@asynchronous
async def test_of_two_who_make_a_key_at_once_one_gets_it() -> None:
    async with ring() as one:
        others = [Ring(one.ring._store) for _ in range(5)]
        made = await asyncio.gather(*(other.ring.create("ci") for other in others), return_exceptions=True)
        keys = [key for key in made if isinstance(key, str)]

        assert len(keys) == 1
        assert all(isinstance(error, StoreError) for error in made if not isinstance(error, str))
        await one.ring.refresh()
        assert one.who(keys[0]) is not None


@asynchronous
async def test_after_it_was_revoked_or_expired_an_id_may_have_a_new_key() -> None:
    async with ring() as one:
        first = await one.ring.create("ci")
        await one.ring.revoke("ci")
        second = await one.ring.create("ci", expires_at=NOW + 10)
        one.clock.now = NOW + 10
        third = await one.ring.create("ci")

        assert [one.who(key) is not None for key in (first, second, third)] == [False, False, True]


@asynchronous
async def test_a_key_expires_when_it_says() -> None:
    async with ring() as one:
        key = await one.ring.create("ci", expires_at=NOW + 10)
        one.clock.now = NOW + 9.9
        assert one.who(key) is not None
        one.clock.now = NOW + 10
        assert one.who(key) is None
        await one.ring.refresh()
        assert one.who(key) is None
        assert len(one.keys) == 0


@asynchronous
async def test_keys_are_read_again_only_when_another_hub_changed_any(tmp_path: Path) -> None:
    database = CountedSqlite(tmp_path / "store.db")
    here, there = Store(database), Store(SqliteDatabase(tmp_path / "store.db"))
    one, other = Ring(here), Ring(there)
    key = await other.ring.create("ci")
    await one.ring.refresh()
    assert one.who(key) is not None

    database.reads.clear()
    for _ in range(5):
        await one.ring.refresh()
    assert database.reads == {"revisions": 5}
    await other.ring.revoke("ci")
    await one.ring.refresh()
    assert one.who(key) is None
    assert database.reads == {"revisions": 6, "keys": 1}
    await here.close()
    await there.close()


@asynchronous
async def test_another_hub_on_the_store_hears_of_keys_when_it_looks() -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        key = await one.ring.create("ci", roles=["agent"])
        assert other.who(key) is None
        await other.ring.refresh()
        assert other.who(key) == Principal("ci", ("agent",))

        await one.ring.revoke("ci")
        await other.ring.refresh()
        assert other.who(key) is None
        again = await one.ring.create("ci", roles=["lead"])
        await other.ring.refresh()
        assert (other.who(key), other.who(again)) == (None, Principal("ci", ("lead",)))


@pytest.mark.parametrize("value", [{"x": 1}, {"id": "bad", "hash": "none"}])
@asynchronous
async def test_a_key_that_cannot_be_read_keeps_nobody_from_hearing_of_others(value: object) -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        old = await one.ring.create("ci")
        await other.ring.refresh()
        await one.ring._store.keys.put("bad", value, 0)
        await one.ring.revoke("ci")
        new = await one.ring.create("dev")
        await other.ring.refresh()

        assert (other.who(old), other.who(new)) == (None, Principal("dev"))


@asynchronous
async def test_a_key_that_cannot_be_read_may_be_replaced_and_not_revoked() -> None:
    async with ring() as one:
        await one.ring._store.keys.put("ci", {"x": 1}, 0)
        with pytest.raises(UnknownCapability):
            await one.ring.revoke("ci")

        assert one.who(await one.ring.create("ci")) == Principal("ci")


@asynchronous
async def test_a_key_is_revoked_for_good_even_if_that_cannot_be_told() -> None:
    def fail(_: object) -> None:
        raise RuntimeError("by accident")

    async with ring() as one:
        await one.ring.create("ci")
        one.keys.on_change = fail
        with pytest.raises(RuntimeError):
            await one.ring.revoke("ci")

        assert [entry.revoked_at for entry in await one.ring.entries()] == [NOW]


@asynchronous
async def test_a_key_replaced_between_two_looks_is_replaced() -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        old = await one.ring.create("ci")
        await other.ring.refresh()
        await one.ring.revoke("ci")
        new = await one.ring.create("ci")
        await other.ring.refresh()

        assert (other.who(old), other.who(new)) == (None, Principal("ci"))


@asynchronous
async def test_looking_again_changes_nothing_for_keys_that_are_good() -> None:
    async with ring(Key("fixed", digest("wp_fixed"))) as one:
        key = await one.ring.create("ci")
        for _ in range(3):
            await one.ring.refresh()

        assert one.who(key) == Principal("ci")
        assert one.who("wp_fixed") == Principal("fixed")
        assert len(one.keys) == 2


@asynchronous
async def test_keys_of_the_configuration_do_not_go_with_those_of_the_store() -> None:
    fixed = new_key()
    async with ring(Key("ci", digest(fixed))) as one:
        try:
            await one.ring.create("ci")
        except WaypostError:
            return
        await one.ring.revoke("ci")
        assert one.who(fixed) is not None


@pytest.mark.parametrize("name", ["", "anonymous"])
@asynchronous
async def test_an_id_that_cannot_be_a_keys_is_refused_before_anything_is_kept(name: str) -> None:
    async with ring() as one:
        with pytest.raises(DefinitionError, match="cannot have the id"):
            await one.ring.create(name)
        assert await one.ring.entries() == []


@pytest.mark.parametrize("expires_at", [float("nan"), float("inf"), 1e20])
@asynchronous
async def test_an_expiry_no_calendar_has_is_refused_in_a_sentence(expires_at: float) -> None:
    async with ring() as one:
        with pytest.raises(WaypostError):
            await one.ring.create("ci", expires_at=expires_at)
        assert await one.ring.entries() == []


@given(st.none() | st.floats(0, 100), st.none() | st.floats(0, 100), st.floats(0, 100))
def test_an_entry_is_good_until_it_is_revoked_or_over(expires: float | None, revoked: float | None, now: float) -> None:
    entry = KeyEntry("ci", digest("x"), expires_at=expires, revoked_at=revoked)

    assert entry.is_good(now) == (revoked is None and (expires is None or now < expires))


def whoami(**options: object) -> Hub:
    hub = Hub("h", version="1", **options)  # type: ignore[arg-type]

    @hub.tool(name="whoami")
    async def tell(ctx: Context) -> str:
        """Say who is calling."""
        return ctx.principal.id

    return hub


async def answer(web: Web, key: str) -> tuple[int, str]:
    call = await web.modern("tools/call", {"name": "whoami", "arguments": {}}, {"authorization": f"Bearer {key}"})
    return call.status, call.body.decode()


@asynchronous
async def test_over_http_a_key_works_until_it_is_revoked() -> None:
    hub = whoami(auth=Authentication(anonymous=False))
    async with browsing(hub) as web:
        before = await answer(web, new_key())
        key = await hub.keys.create("ci")
        inside = await answer(web, key)
        other = await answer(web, new_key())
        await hub.keys.revoke("ci")
        after = await answer(web, key)

    assert before == (401, '{"error":"MCP API key not configured"}')
    assert inside[0] == 200
    assert '"ci"' in inside[1]
    assert other == (401, '{"error":"Invalid API key"}')
    assert after[0] == 401


@asynchronous
async def test_two_hubs_on_one_store_share_their_keys(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "store.db")
    first, second = (whoami(auth=Authentication(anonymous=False), store=Store(database)) for _ in range(2))
    async with browsing(first), browsing(second) as web:
        key = await first.keys.create("ci")
        await second.keys.refresh()
        assert (await answer(web, key))[0] == 200
        await first.keys.revoke("ci")
        await second.keys.refresh()
        assert (await answer(web, key))[0] == 401
