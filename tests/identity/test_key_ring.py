"""Keys that are created and revoked at run time: returned once, stored as hashes, refused once revoked."""

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
    """A key ring with its clock and keys."""

    def __init__(self, store: Store, *configured: Key) -> None:
        self.clock = Clock()
        self.keys = Keys(configured, clock=self.clock)
        self.ring = KeyRing(self.keys, store, self.clock)

    def principal_of(self, key: str) -> Principal | None:
        return self.keys.principal(key)


@asynccontextmanager
async def ring(*configured: Key) -> AsyncIterator[Ring]:
    store = Store(SqliteDatabase())
    yield Ring(store, *configured)
    await store.close()


@asynchronous
async def test_a_new_key_is_accepted_at_once() -> None:
    async with ring() as one:
        key = await one.ring.create("ci", roles=["agent"], permissions=["deploy"], scopes=["read"])

        assert one.principal_of(key) == Principal("ci", ("agent",), ("deploy",), ("read",))


@asynchronous
async def test_keys_are_listed_without_their_secret() -> None:
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
        assert all(other.principal_of(key) is not None for key in made)


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
        assert one.principal_of(key) is None

        await one.ring.refresh()
        assert one.principal_of(key) is None


@asynchronous
async def test_revoking_an_unknown_or_revoked_key_is_an_error() -> None:
    async with ring() as one:
        await one.ring.create("ci")
        await one.ring.revoke("ci")
        for name in ("ci", "nobody"):
            with pytest.raises(UnknownCapability, match=rf"^There is no key for {name} that could be revoked\.$"):
                await one.ring.revoke(name)


@asynchronous
async def test_a_second_key_for_the_same_id_is_refused() -> None:
    async with ring() as one:
        key = await one.ring.create("ci")
        with pytest.raises(StoreError, match=r"^There is a key for ci already; revoke it first\.$"):
            await one.ring.create("ci", permissions=["deploy"])

        assert one.principal_of(key) == Principal("ci")


@asynchronous
async def test_only_one_of_several_concurrent_creations_of_a_key_succeeds() -> None:
    async with ring() as one:
        others = [Ring(one.ring._store) for _ in range(5)]
        made = await asyncio.gather(*(other.ring.create("ci") for other in others), return_exceptions=True)
        keys = [key for key in made if isinstance(key, str)]

        assert len(keys) == 1
        assert all(isinstance(error, StoreError) for error in made if not isinstance(error, str))
        await one.ring.refresh()
        assert one.principal_of(keys[0]) is not None


@asynchronous
async def test_a_new_key_may_replace_a_revoked_or_expired_one() -> None:
    async with ring() as one:
        first = await one.ring.create("ci")
        await one.ring.revoke("ci")
        second = await one.ring.create("ci", expires_at=NOW + 10)
        one.clock.now = NOW + 10
        third = await one.ring.create("ci")

        assert [one.principal_of(key) is not None for key in (first, second, third)] == [False, False, True]


@asynchronous
async def test_a_key_expires_when_it_says() -> None:
    async with ring() as one:
        key = await one.ring.create("ci", expires_at=NOW + 10)
        one.clock.now = NOW + 9.9
        assert one.principal_of(key) is not None
        one.clock.now = NOW + 10
        assert one.principal_of(key) is None
        await one.ring.refresh()
        assert one.principal_of(key) is None
        assert len(one.keys) == 0


@asynchronous
async def test_keys_are_reloaded_only_after_a_change_by_another_hub(tmp_path: Path) -> None:
    database = CountedSqlite(tmp_path / "store.db")
    here, there = Store(database), Store(SqliteDatabase(tmp_path / "store.db"))
    one, other = Ring(here), Ring(there)
    key = await other.ring.create("ci")
    await one.ring.refresh()
    assert one.principal_of(key) is not None

    database.reads.clear()
    for _ in range(5):
        await one.ring.refresh()
    assert database.reads == {"revisions": 5}
    await other.ring.revoke("ci")
    await one.ring.refresh()
    assert one.principal_of(key) is None
    assert database.reads == {"revisions": 6, "keys": 1}
    await here.close()
    await there.close()


@asynchronous
async def test_another_hub_on_the_same_store_sees_key_changes_after_a_refresh() -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        key = await one.ring.create("ci", roles=["agent"])
        assert other.principal_of(key) is None
        await other.ring.refresh()
        assert other.principal_of(key) == Principal("ci", ("agent",))

        await one.ring.revoke("ci")
        await other.ring.refresh()
        assert other.principal_of(key) is None
        again = await one.ring.create("ci", roles=["lead"])
        await other.ring.refresh()
        assert (other.principal_of(key), other.principal_of(again)) == (None, Principal("ci", ("lead",)))


@pytest.mark.parametrize("value", [{"x": 1}, {"id": "bad", "hash": "none"}])
@asynchronous
async def test_an_unreadable_stored_key_does_not_hide_changes_of_other_keys(value: object) -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        old = await one.ring.create("ci")
        await other.ring.refresh()
        await one.ring._store.keys.put("bad", value, 0)
        await one.ring.revoke("ci")
        new = await one.ring.create("dev")
        await other.ring.refresh()

        assert (other.principal_of(old), other.principal_of(new)) == (None, Principal("dev"))


@asynchronous
async def test_an_unreadable_stored_key_can_be_replaced_but_not_revoked() -> None:
    async with ring() as one:
        await one.ring._store.keys.put("ci", {"x": 1}, 0)
        with pytest.raises(UnknownCapability):
            await one.ring.revoke("ci")

        assert one.principal_of(await one.ring.create("ci")) == Principal("ci")


@asynchronous
async def test_a_revocation_is_stored_even_if_the_change_callback_fails() -> None:
    def fail(_: object) -> None:
        raise RuntimeError("by accident")

    async with ring() as one:
        await one.ring.create("ci")
        one.keys.on_change = fail
        with pytest.raises(RuntimeError):
            await one.ring.revoke("ci")

        assert [entry.revoked_at for entry in await one.ring.entries()] == [NOW]


@asynchronous
async def test_a_key_replaced_between_two_refreshes_is_replaced() -> None:
    async with ring() as one:
        other = Ring(one.ring._store)
        old = await one.ring.create("ci")
        await other.ring.refresh()
        await one.ring.revoke("ci")
        new = await one.ring.create("ci")
        await other.ring.refresh()

        assert (other.principal_of(old), other.principal_of(new)) == (None, Principal("ci"))


@asynchronous
async def test_a_refresh_keeps_valid_keys() -> None:
    async with ring(Key("fixed", digest("wp_fixed"))) as one:
        key = await one.ring.create("ci")
        for _ in range(3):
            await one.ring.refresh()

        assert one.principal_of(key) == Principal("ci")
        assert one.principal_of("wp_fixed") == Principal("fixed")
        assert len(one.keys) == 2


@asynchronous
async def test_revoking_a_stored_key_keeps_the_configured_key_of_the_same_id() -> None:
    fixed = new_key()
    async with ring(Key("ci", digest(fixed))) as one:
        try:
            await one.ring.create("ci")
        except WaypostError:
            return
        await one.ring.revoke("ci")
        assert one.principal_of(fixed) is not None


@pytest.mark.parametrize("name", ["", "anonymous"])
@asynchronous
async def test_an_invalid_key_id_is_refused_and_not_stored(name: str) -> None:
    async with ring() as one:
        with pytest.raises(DefinitionError, match="cannot have the id"):
            await one.ring.create(name)
        assert await one.ring.entries() == []


@pytest.mark.parametrize("expires_at", [float("nan"), float("inf"), 1e20])
@asynchronous
async def test_an_expiry_outside_the_calendar_is_refused(expires_at: float) -> None:
    async with ring() as one:
        with pytest.raises(WaypostError):
            await one.ring.create("ci", expires_at=expires_at)
        assert await one.ring.entries() == []


@given(st.none() | st.floats(0, 100), st.none() | st.floats(0, 100), st.floats(0, 100))
def test_an_entry_is_valid_until_it_is_revoked_or_expires(
    expires: float | None, revoked: float | None, now: float
) -> None:
    entry = KeyEntry("ci", digest("x"), expires_at=expires, revoked_at=revoked)

    assert entry.is_good(now) == (revoked is None and (expires is None or now < expires))


def whoami_hub(**options: object) -> Hub:
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
    hub = whoami_hub(auth=Authentication(anonymous=False))
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
    first, second = (whoami_hub(auth=Authentication(anonymous=False), store=Store(database)) for _ in range(2))
    async with browsing(first), browsing(second) as web:
        key = await first.keys.create("ci")
        await second.keys.refresh()
        assert (await answer(web, key))[0] == 200
        await first.keys.revoke("ci")
        await second.keys.refresh()
        assert (await answer(web, key))[0] == 401
