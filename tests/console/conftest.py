"""A person with a browser of our own: keeps the cookie, follows redirects and fills in forms, in process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from tests.api.conftest import ADMIN, operated_hub
from tests.protocol.conftest import Json
from tests.transports.http.conftest import HOST, Call, Web
from waypost import Hub

FORM = "application/x-www-form-urlencoded"


class Person(Web):
    """A person in front of the console."""

    cookie = ""
    csrf = ""

    async def visit(
        self,
        path: str,
        verb: str = "GET",
        form: dict[str, str] | None = None,
        *,
        address: str = "127.0.0.1",
        scheme: str = "http",
        **headers: str,
    ) -> Call:
        """Send one request and keep the cookie of the answer."""
        sent = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookie:
            sent["cookie"] = f"waypost_session={self.cookie}"
        if form is not None:
            sent.setdefault("content-type", FORM)
        place, _, query = path.partition("?")
        scope: Json = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": verb,
            "scheme": scheme,
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": (address, 50000),
            "server": ("127.0.0.1", 8420),
        }
        call = Call(self.app, scope, [b"" if form is None else urlencode(form).encode()])
        self.calls.append(call)
        if not place.endswith("/events"):
            await call.task
        if found := re.match(r"waypost_session=([^;]*)", call.headers.get("set-cookie", "")):
            self.cookie = found[1]
        if found := re.search(r'name="csrf" value="([0-9a-f]+)"', call.body.decode("utf-8", "replace")):
            self.csrf = found[1]
        return call

    async def read(self, page: str = "", status: int = 200) -> str:
        """The HTML of a page of the console."""
        call = await self.visit(f"/console/{page}")
        assert call.status == status, (call.status, call.headers, call.body[:500])
        return call.body.decode()

    async def act(
        self, page: str, action: str, fields: dict[str, str] | None = None, *, status: int = 200, **form: str
    ) -> str:
        """The HTML after an action, from the form of the last page."""
        sent = {"csrf": self.csrf, "action": action, **(fields or {}), **form}
        call = await self.visit(f"/console/{page}", "POST", sent)
        assert call.status == status, (call.status, call.body[:500])
        return call.body.decode()

    async def sign_in(self, key: str = ADMIN, **form: str) -> Call:
        """Sign in with a key."""
        return await self.visit("/console/sign-in", "POST", {"key": key, **form})


@asynccontextmanager
async def browsing(hub: Hub | None = None, key: str | None = ADMIN) -> AsyncIterator[Person]:
    """A person who is signed in, unless there is no key."""
    person = Person(operated_hub(rules=()) if hub is None else hub)
    try:
        if key is not None:
            assert (await person.sign_in(key)).status == 303
        yield person
    finally:
        await person.hub.stop()
        for call in person.calls:
            call.leave()
