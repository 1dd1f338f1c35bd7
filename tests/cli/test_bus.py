"""The bus of a served hub: without its server the hub starts degraded; if the server refuses it, the hub exits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from tests.cli.shell import PATIENCE, serving, waypost
from tests.nats import NatsServer, running_nats
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url


def write_config(folder: Path, store: str, bus: str, cluster: str = "one") -> None:
    """A hub on PostgreSQL with a bus."""
    (folder / "waypost.yaml").write_text(
        f'version: "1"\nserver: {{name: desk, version: "1", port: 0}}\n'
        f'store: {{url: "{store}"}}\nbus: {{url: "{bus}"}}\ncluster: {{id: {cluster}}}\n'
    )


def read_health(url: str) -> dict[str, Any]:
    """The answer of `/health`."""
    with urlopen(url.removesuffix("/mcp") + "/health", timeout=PATIENCE) as response:
        return msgspec.json.decode(response.read(), type=dict[str, Any])


def test_a_hub_without_its_bus_starts_degraded_and_recovers(tmp_path: Path, postgres_url: str) -> None:
    server = NatsServer()
    write_config(tmp_path, postgres_url, server.url)
    try:
        with serving(cwd=tmp_path) as hub:
            health = read_health(hub.url)
            assert (health["status"], health["db"], health["bus"]) == ("ok", "ok", "degraded")
            hub.wait_for("bus not connected")
            server.start()
            deadline = time.monotonic() + PATIENCE
            while read_health(hub.url)["bus"] != "ok":
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        server.kill()


def test_wrong_credentials_of_the_bus_are_a_one_line_error_with_status_1(tmp_path: Path, postgres_url: str) -> None:
    with running_nats("--user", "ada", "--pass", "lovelace") as server:
        host = server.url.removeprefix("nats://")
        write_config(tmp_path, postgres_url, f"nats://ada:wrong@{host}")
        ended = waypost("serve", cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == f"waypost: The NATS server at {host} refused the credentials of the bus.\n"


@pytest.mark.parametrize("permission", ['subscribe: "other.>"', 'publish: "waypost.one.>"'])
def test_missing_permissions_on_the_nats_server_are_a_one_line_error_with_status_1(
    permission: str, tmp_path: Path, postgres_url: str
) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(f"authorization {{ users = [ {{ user: ada, password: x, permissions: {{ {permission} }} }} ] }}\n")
    with running_nats("-c", str(file)) as server:
        host = server.url.removeprefix("nats://")
        write_config(tmp_path, postgres_url, f"nats://ada:x@{host}", "two")
        ended = waypost("serve", cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"waypost: The NATS server at {host} does not permit the subjects of the cluster; ")
    assert ended.stderr.count("\n") == 1
    assert "allow to publish and to subscribe waypost.two.>" in ended.stderr
