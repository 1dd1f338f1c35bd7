"""A bus through NATS: subjects below `waypost.<cluster>`, and its own requests with "no responders".

The URL names one or more servers, `nats://user:password@a:4222,b:4222`; `tls://` encrypts. Options follow as in
`?creds=/path/to/user.creds&ca=/path/to/ca.pem&cert=/path/to/cert.pem&key=/path/to/key.pem`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from itertools import count
from secrets import token_hex
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error, SlowConsumerError

from waypost.buses.remote import Kind, Link, Receiver, RemoteBus, describe
from waypost.errors import NoHolder, WaypostError

_log: Final = logging.getLogger(__name__)

_TIMEOUT_S: Final = 2
_PING_INTERVAL_S: Final = 5
_STATUS: Final = "Status"
_NO_RESPONDERS: Final = "503"
"""The header of the reply of a server that knows no responder."""
_OPTIONS: Final = ("creds", "ca", "cert", "key")
_WORDS: Final[dict[Kind, str]] = {"messages": "say", "requests": "ask"}


class Servers(msgspec.Struct, frozen=True):
    """What the URL of a NATS bus names."""

    urls: tuple[str, ...]
    options: dict[str, str]

    @property
    def name(self) -> str:
        """The servers for error messages, without credentials."""
        return ",".join(url.rpartition("@")[2].rpartition("/")[2] for url in self.urls)

    def build_tls(self) -> ssl.SSLContext | None:
        """The context for TLS; `None` where the servers are reached without it."""
        if not self.options.get("ca") and not self.options.get("cert") and not self.urls[0].startswith("tls:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.options.get("ca"))
            if self.options.get("cert"):
                context.load_cert_chain(self.options["cert"], self.options.get("key"))
        except OSError as error:
            raise WaypostError(f"A TLS file of the NATS bus at {self.name} cannot be read: {error}.") from None
        return context


def parse_url(url: str) -> Servers:
    """The servers of a URL; raises `WaypostError` for one that cannot be read."""
    base, _, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    options = dict(parse_qsl(query))
    if unknown := options.keys() - set(_OPTIONS):
        raise WaypostError(f"A NATS bus has no option {min(unknown)!r}; there are {', '.join(_OPTIONS)}.")
    hosts = [host for host in rest.rstrip("/").split(",") if host]
    if scheme not in ("nats", "tls") or not hosts:
        raise WaypostError("The URL of a NATS bus is like nats://host:4222,host:4222.")
    user = hosts[0].rpartition("@")[0]  # given once, it is for all servers
    return Servers(
        tuple(f"{scheme}://{host if '@' in host or not user else f'{user}@{host}'}" for host in hosts), options
    )


def create_bus(url: str, cluster: str) -> RemoteBus:
    """The bus on NATS servers, not connected yet."""
    servers = parse_url(url)
    tls = servers.build_tls()

    async def connect(receiver: Receiver) -> NatsLink:
        failures: list[str] = []
        for one in servers.urls:
            link = NatsLink(receiver, cluster, servers.name)
            try:
                await link.connect(one, servers.options.get("creds"), tls)
            except ConnectionError as error:
                failures.append(str(error))
            else:
                return link
        raise ConnectionError("; ".join(dict.fromkeys(failures)))

    return RemoteBus(f"The NATS bus at {servers.name}", connect)


class NatsLink(Link):
    """One connection to one server; a lost one is not used again, so that nothing queued is sent late."""

    failures = (OSError, TimeoutError, Error)

    def __init__(self, receiver: Receiver, cluster: str, name: str) -> None:
        super().__init__(receiver)
        self._prefix = f"waypost.{cluster}"
        self._name = name
        self._client = Client()
        self._subscriptions: dict[tuple[Kind, str], Subscription] = {}
        self._problems: list[str] = []
        self._outgoing: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(10_000)
        # One subscription for all replies: one for each request would cost a round trip.
        self._inbox = f"{self._prefix}.inbox.{token_hex(8)}."
        self._numbers = count()
        self._replies: dict[str, asyncio.Future[Msg]] = {}
        """The requests that wait for a reply, by the subject that it comes to."""

    async def connect(self, url: str, creds: str | None, tls: ssl.SSLContext | None) -> None:
        """Connect to a server, and find out whether the cluster's subjects may be used."""
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                await self._client.connect(
                    [url],
                    name="waypost",
                    allow_reconnect=False,
                    no_echo=True,  # the subscribers here get a message when it is published
                    connect_timeout=_TIMEOUT_S,
                    # Without these, a server that cannot be reached is tried for ever inside `connect`.
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=_PING_INTERVAL_S,
                    max_outstanding_pings=2,
                    error_cb=self._failed,
                    closed_cb=self._closed,
                    user_credentials=creds,
                    tls=tls,
                )
                await self._check_permissions()
                await self._client.subscribe(f"{self._inbox}*", cb=self._take_reply)
        except self.failures as error:
            await self._client.close()
            problem = " ".join([*self._problems, str(error)]).lower()
            # While it connects, nats-py raises one type for everything that the server refuses: only the text tells.
            if "authorization" in problem or "authentication" in problem:
                raise WaypostError(f"The NATS server at {self._name} refused the credentials of the bus.") from None
            raise ConnectionError(describe(error)) from None
        except BaseException:
            await self._client.close()
            raise
        self.run(self._send_queued())

    async def _check_permissions(self) -> None:
        """Use a subject of each kind; the server reports what it does not permit before it answers the flush."""
        self._problems.clear()
        probes = [await self._client.subscribe(f"{self._prefix}.{word}.>") for word in ("say", "ask", "inbox")]
        for word in ("say", "ask", "inbox"):
            await self._client.publish(f"{self._prefix}.{word}.probe")
        await self._wait_for_server()
        if self._problems:
            raise WaypostError(
                f"The NATS server at {self._name} does not permit the subjects of the cluster; "
                f"allow to publish and to subscribe {self._prefix}.> ({self._problems[0]})."
            )
        for probe in probes:
            await probe.unsubscribe()

    def send(self, subject: str, message: bytes) -> None:
        """Queue a message."""
        try:
            self._outgoing.put_nowait((f"{self._prefix}.say.{subject}", message))
        except asyncio.QueueFull:
            _log.warning("bus is %s messages behind and loses some", self._outgoing.maxsize)

    async def add(self, kind: Kind, subject: str) -> None:
        """Subscribe, and wait until the server has done so."""
        where = f"{self._prefix}.{_WORDS[kind]}.{subject}"

        async def receive(message: Msg) -> None:
            # Without the prefix and ".say.". The server sends a message once for each of our subscriptions that match.
            self._receiver.deliver(message.subject[len(self._prefix) + 5 :], message.data, subject)

        async def answer(message: Msg) -> None:
            self.run(self._answer(subject, message), answers=True)

        async with self.watch():
            self._subscriptions[kind, subject] = (
                await self._client.subscribe(where, cb=receive)
                if kind == "messages"
                # In a queue group the server gives each request to one member.
                else await self._client.subscribe(where, queue="waypost", cb=answer)
            )
            await self._wait_for_server()

    async def remove(self, kind: Kind, subject: str) -> None:
        """Unsubscribe, and wait until the server has done so."""
        subscription = self._subscriptions.pop((kind, subject), None)
        if subscription is None:  # it began when the connection was lost already
            return
        async with self.watch():
            await _drain(subscription)
            await self._wait_for_server()

    async def request(self, name: str, message: bytes) -> bytes:
        """Send a request, and wait for the reply; the bus has the deadline."""
        # The driver's own requests make a task and a timer each.
        subject = f"{self._inbox}{next(self._numbers)}"
        waiting = self._replies[subject] = asyncio.get_running_loop().create_future()
        try:
            async with self.watch():
                await self._client.publish(f"{self._prefix}.ask.{name}", message, reply=subject)
            reply = await waiting
        finally:
            del self._replies[subject]
        if reply.headers and reply.headers.get(_STATUS) == _NO_RESPONDERS:
            raise NoHolder(f"Nothing responds to {name}.")
        return bytes(reply.data)

    async def refuse_requests(self) -> None:
        """Unsubscribe from requests: one that reaches the server before it sees the connection end would be lost."""
        requests = [one for (kind, _), one in self._subscriptions.items() if kind == "requests"]
        await asyncio.gather(*map(_drain, requests))

    async def flush(self) -> None:
        """Send what is queued."""
        while not self._outgoing.empty():
            await self._client.publish(*self._outgoing.get_nowait())
        await self._wait_for_server()

    async def disconnect(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def _wait_for_server(self) -> None:
        """Wait until the server has processed everything that was sent before."""
        # The client sends the ping of a flush ahead of commands that wait, so only a second one comes after them.
        await self._client.flush(timeout=_TIMEOUT_S)
        await self._client.flush(timeout=_TIMEOUT_S)

    async def _send_queued(self) -> None:
        while True:
            await self._client.publish(*await self._outgoing.get())

    async def _answer(self, name: str, message: Msg) -> None:
        await self._client.publish(message.reply, await self._receiver.answer(name, message.data))

    async def _take_reply(self, message: Msg) -> None:
        waiting = self._replies.get(message.subject)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):  # the driver has dropped a message; it comes with each
            self._receiver.note_loss()
        else:
            self._problems.append(describe(error))

    async def _closed(self) -> None:
        self.lose()


async def _drain(subscription: Subscription) -> None:
    """Unsubscribe; unlike with `unsubscribe`, what the server sent before is still delivered."""
    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py declares no result
