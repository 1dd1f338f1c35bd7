"""Three replicas behind a balancer, with a PostgreSQL, a bus and network links of their own, and the faults of each."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from tests.chaos import carrier, mill
from tests.chaos.balancer import Balancer, balancing
from tests.chaos.freezing_proxy import FreezingProxy, freezing_proxy, proxying
from tests.cli.shell import Serving, environment, serving
from tests.nats import NatsServer
from tests.ports import free_port
from tests.postgres import running_server

REPLICAS: Final = ("a", "b", "c")
MILL: Final = f"{mill.__file__}:hub"
KILLABLE: Final = {"fsync": "off", "full_page_writes": "off"}
"""A killed server leaves what it wrote to the machine; without `synchronous_commit` it would not have written it."""
START_S: Final = 60.0
"""How long a replica may take to start beside everything else on a busy machine."""
BusKind = Literal["nats", "postgres"]


class KillableServer:
    """A PostgreSQL server of this test, which may be killed and started again."""

    def __init__(self, stack: ExitStack, settings: dict[str, str] | None = None) -> None:
        self._stack = stack
        self._directory = Path(tempfile.gettempdir()) / f"waypost-kill-{secrets.token_hex(4)}"
        self.url = stack.enter_context(running_server(self._directory, settings, keep=False))

    def kill(self) -> None:
        """Kill the postmaster; its child processes end by themselves."""
        os.kill(int((self._directory / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def start(self) -> None:
        """Start it again, as soon as the child processes are gone."""
        assert self._stack.enter_context(running_server(self._directory)) == self.url


class Replica:
    """A replica: one `waypost serve` process at a time."""

    def __init__(
        self, name: str, folder: Path, link: FreezingProxy, bus_links: list[FreezingProxy], env: dict[str, str]
    ) -> None:
        self.name = name
        self.link = link
        """Its way to PostgreSQL."""
        self.bus_links = bus_links
        """Its ways to the NATS servers."""
        self.worker_port = 0
        self.log: list[str] = []
        self._folder = folder / name
        self._env = env
        self._served: ExitStack | None = None
        self._hub: Serving | None = None

    async def start(self, balancer: Balancer) -> None:
        """Start it and add it to the balancer."""
        self._folder.mkdir(exist_ok=True)
        stack = ExitStack()
        serve = serving(MILL, "--port", "0", "--data", self._folder, cwd=self._folder, **self._env)
        self._hub, self._served = await asyncio.to_thread(stack.enter_context, serve), stack
        balancer.add(self.name, await asyncio.to_thread(self.hub.find_url, START_S))
        self.worker_port = urlsplit(self.hub.find_worker_url()).port or 0

    async def connect_worker(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the worker port of its process."""
        return await asyncio.open_connection("127.0.0.1", self.worker_port)

    @property
    def hub(self) -> Serving:
        """Its process."""
        assert self._hub is not None
        return self._hub

    async def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it has ended."""
        self.hub.signal(number)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            served.close()
            self.log += self.hub.lines

    async def stop(self) -> None:
        """Kill it if it runs."""
        if self._served is not None:
            await self.end(signal.SIGKILL)


class Carrier:
    """A worker of one replica: a process at a time."""

    def __init__(self, folder: Path, link: FreezingProxy, url: str) -> None:
        self.link = link
        """Its proxy to the replica."""
        self._folder = folder
        self._url = url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it connects by itself."""
        with (self._folder / "carriers.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, carrier.__file__, self._url],
                env=environment(MILL_EFFECTS=str(self._folder / "effects")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class Cluster:
    """Every process of the cluster, and the faults it can have; each fault is repaired at its end."""

    def __init__(
        self,
        replicas: list[Replica],
        balancer: Balancer,
        postgres: KillableServer,
        nats: list[NatsServer],
        carriers: list[Carrier],
        chance: random.Random,
    ) -> None:
        self.replicas = replicas
        self.carriers = carriers
        self.balancer = balancer
        self.postgres = postgres
        self.nats = nats
        self.counted: Counter[str] = Counter()
        """How often each fault happened."""
        self.freeze_s = 6.5
        """How long a replica is stopped: longer than the five seconds after which it counts as dead."""
        self._chance = chance
        self._faulty: set[str] = set()
        self._at_once = asyncio.Semaphore(len(replicas) - 1)
        self._postgres_turn = asyncio.Lock()
        self._nats_turn = asyncio.Lock()
        self._carriers_turn = asyncio.Lock()

    @property
    def faults(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """All faults by name."""
        of_replicas = {
            "kill a replica": self.kill_replica,
            "stop a replica": self.freeze_replica,
            "hold back its packets": self.freeze_link,
            "drop its connections": self.drop_link,
            "kill PostgreSQL": self.kill_postgres,
        }
        of_bus = {
            "kill a NATS server": self.kill_one_nats,
            "kill all NATS servers": self.kill_all_nats,
            "hold back its packets of NATS": self.freeze_bus_links,
            "drop its connections to NATS": self.drop_bus_links,
        }
        of_workers = {
            "kill a worker": self.kill_carrier,
            "hold back packets of a worker": self.freeze_carrier,
            "drop the connection of a worker": self.drop_carrier,
        }
        return of_replicas | (of_bus if self.nats else {}) | (of_workers if self.carriers else {})

    async def cause(self, fault: str) -> None:
        """Cause a fault."""
        await self.faults[fault]()
        self.counted[fault] += 1

    @asynccontextmanager
    async def _faulty_replica(self) -> AsyncIterator[Replica]:
        """Pick a replica without a fault, provided that another one has none either."""
        async with self._at_once:
            replica = self._chance.choice([one for one in self.replicas if one.name not in self._faulty])
            self._faulty.add(replica.name)
            try:
                yield replica
            finally:
                self._faulty.discard(replica.name)

    async def kill_replica(self) -> None:
        """kill -9, and a new process."""
        async with self._faulty_replica() as replica:
            await replica.end(signal.SIGKILL)
            async with self._postgres_turn:  # no hub starts without its store
                await replica.start(self.balancer)

    async def freeze_replica(self) -> None:
        """SIGSTOP for long enough that others take over its work, then SIGCONT."""
        async with self._faulty_replica() as replica:
            replica.hub.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(self.freeze_s)
            finally:
                replica.hub.signal(signal.SIGCONT)

    async def freeze_link(self) -> None:
        """Hold up all traffic between a replica and PostgreSQL, and deliver it later."""
        async with self._faulty_replica() as replica:
            await self._hold([replica.link], 7.0)

    async def drop_link(self) -> None:
        """Cut the network: connections end, and new ones get no answer."""
        async with self._faulty_replica() as replica:
            await self._hold([replica.link], 3.0, drop=True)

    async def freeze_bus_links(self) -> None:
        """The same between a replica and all NATS servers."""
        async with self._faulty_replica() as replica:
            await self._hold(replica.bus_links, self.freeze_s / 2)

    async def drop_bus_links(self) -> None:
        """The network between a replica and all NATS servers is cut."""
        async with self._faulty_replica() as replica:
            await self._hold(replica.bus_links, 3.0, drop=True)

    async def freeze_carrier(self) -> None:
        """The same between a worker and its replica."""
        async with self._carriers_turn:
            await self._hold([self._chance.choice(self.carriers).link], 3.0)

    async def drop_carrier(self) -> None:
        """The network between a worker and its replica is cut."""
        async with self._carriers_turn:
            await self._hold([self._chance.choice(self.carriers).link], 1.0, drop=True)

    async def kill_carrier(self) -> None:
        """kill -9 of a worker, and a new process."""
        async with self._carriers_turn:
            killed = self._chance.choice(self.carriers)
            killed.kill()
            killed.start()

    async def _hold(self, links: list[FreezingProxy], longest: float, *, drop: bool = False) -> None:
        for link in links:
            link.freeze()
            if drop:
                link.drop()
        await asyncio.sleep(self._chance.uniform(0.1 * longest, longest))
        for link in links:
            link.thaw()

    async def kill_postgres(self) -> None:
        """kill -9 of PostgreSQL, and a new server on its data."""
        async with self._postgres_turn:
            await asyncio.to_thread(self.postgres.kill)
            await asyncio.to_thread(self.postgres.start)

    async def kill_one_nats(self) -> None:
        """Kill one of three NATS servers and start an empty one."""
        await self._restart_nats([self._chance.choice(self.nats)])

    async def kill_all_nats(self) -> None:
        """Kill all NATS servers and start empty ones."""
        await self._restart_nats(self.nats)

    async def _restart_nats(self, servers: list[NatsServer]) -> None:
        async with self._nats_turn:
            for server in servers:
                server.kill()
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))
            for server in servers:
                await asyncio.to_thread(server.start)


@asynccontextmanager
async def three_replicas(
    folder: Path, bus: BusKind, chance: random.Random, *, carriers: int = 0
) -> AsyncIterator[Cluster]:
    """A cluster that runs until the block ends, with workers at so many of its replicas."""
    async with AsyncExitStack() as stack:
        processes = stack.enter_context(ExitStack())
        postgres = KillableServer(processes, KILLABLE)
        nats = _start_nats(processes) if bus == "nats" else []
        balancer = await stack.enter_async_context(balancing())
        replicas = []
        for name in REPLICAS:
            link, url = await stack.enter_async_context(freezing_proxy(postgres.url))
            env = {"MILL_STORE": url, "MILL_EFFECTS": str(folder / "effects"), "MILL_WORKERS": "yes"}
            ways = [
                await stack.enter_async_context(proxying(partial(asyncio.open_connection, "127.0.0.1", one.port)))
                for one in nats
            ]
            if nats:
                env["MILL_BUS"] = "nats://" + ",".join(f"127.0.0.1:{port}" for _, port in ways)
            replicas.append(Replica(name, folder, link, [proxy for proxy, _ in ways], env))
        await replicas[0].start(balancer)
        for replica in replicas:
            stack.push_async_callback(replica.stop)
        await asyncio.gather(*(replica.start(balancer) for replica in replicas[1:]))
        workers = []
        for replica in replicas[:carriers]:
            link, port = await stack.enter_async_context(proxying(replica.connect_worker))
            workers.append(Carrier(folder, link, f"ws://127.0.0.1:{port}"))
            workers[-1].start()
            processes.callback(workers[-1].kill)
        yield Cluster(replicas, balancer, postgres, nats, workers, chance)


def _start_nats(stack: ExitStack) -> list[NatsServer]:
    """Three servers that know each other."""
    ports = [free_port() for _ in REPLICAS]
    routes = ",".join(f"nats-route://127.0.0.1:{port}" for port in ports)
    servers = []
    for port in ports:
        where = f"nats://127.0.0.1:{port}"
        # Replicas know the servers by their links only, which can be cut.
        options = ("--cluster_name", "chaos", "--cluster", where, "--routes", routes, "--no_advertise")
        servers.append(NatsServer(*options))
        stack.callback(servers[-1].kill)
        servers[-1].start()
    return servers
