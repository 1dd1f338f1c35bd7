"""The compose file and what it mounts: real replicas, NATS and proxy, started as their containers would be."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from tests.nats import BINARY as NATS
from tests.ports import free_port
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.runtime.runtime import STOP_TIMEOUT_S
from waypost.settings import Server
from waypost.stores import store
from waypost.transports.http import server

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
SCRIPTS: Final = Path(sysconfig.get_path("scripts"))
COMPOSE: Final = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
REPLICAS: Final = ("waypost-1", "waypost-2", "waypost-3")
STOP_S: Final = Server().drain_ms / 1000 + server._GRACE_S + server._CANCEL_S + STOP_TIMEOUT_S
DEADLINE_S: Final = 50


def test_there_are_three_replicas_three_nats_servers_a_database_and_a_proxy() -> None:
    assert set(SERVICES) == {*REPLICAS, "nats-1", "nats-2", "nats-3", "postgres", "proxy"}
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert set(COMPOSE["volumes"]) == {"postgres-data", "proxy-data"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    for mount in service.get("volumes", ()):
        if mount.startswith("./"):
            assert (DEPLOY / mount.split(":")[0]).is_file()
            assert mount.endswith(":ro")


@pytest.mark.parametrize("name", REPLICAS)
def test_a_replica_has_no_rights_and_enough_time_to_stop(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["stop_grace_period"].endswith("s")
    assert int(service["stop_grace_period"][:-1]) > STOP_S
    [check] = re.findall(r"^HEALTHCHECK.*\\\n *CMD (.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert service["healthcheck"]["test"] == ["CMD", *json.loads(check)]


def test_every_secret_is_asked_for_and_none_has_a_default() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?", text))
    optional = set(re.findall(r"\$\{(\w+):-", text))
    example = dict(
        line.split("=", 1) for line in (DEPLOY / ".env.example").read_text().splitlines() if line and line[0] != "#"
    )

    assert required == {"POSTGRES_PASSWORD", "NATS_PASSWORD", "WAYPOST_SECRET"}
    assert {name for name, value in example.items() if not value} == required
    assert set(example) == required | optional
    assert not any(re.search(rf"\$\{{{name}\}}", text) for name in required)


def test_the_proxy_waits_longer_for_a_health_check_than_the_check_for_the_store() -> None:
    [seconds] = re.findall(r"health_timeout (\d+)s", (DEPLOY / "Caddyfile").read_text())
    assert int(seconds) > store._HEALTH_TIMEOUT_S


def test_the_caddyfile_streams_repeats_nothing_and_names_the_replicas() -> None:
    done = subprocess.run(
        [SCRIPTS / "caddy", "adapt", "--config", DEPLOY / "Caddyfile"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "not formatted" not in done.stderr
    proxies = list(find_handlers(json.loads(done.stdout), "reverse_proxy"))
    assert len(proxies) == 2
    for proxy in proxies:
        assert [one["dial"] for one in proxy["upstreams"]] == [f"{name}:8420" for name in REPLICAS]
        assert proxy["flush_interval"] == -1
        balancing = proxy["load_balancing"]
        assert balancing["selection_policy"] == {"policy": "least_conn"}
        assert "retry_match" not in balancing
        assert proxy["health_checks"]["active"]["uri"] == "/health"


def find_handlers(config: Any, name: str) -> Iterator[dict[str, Any]]:
    """The handlers of a kind, anywhere in a configuration of Caddy."""
    if isinstance(config, dict):
        if config.get("handler") == name:
            yield config
        config = list(config.values())
    if isinstance(config, list):
        for part in config:
            yield from find_handlers(part, name)


# The stack


@contextmanager
def running(*command: str | Path, ready: Callable[[str], bool], **env: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed a line which says that it is ready."""
    process = subprocess.Popen(
        list(map(str, command)), cwd=DEPLOY, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        printed = []
        for line in process.stderr:
            printed.append(line)
            if ready(line):
                break
        else:
            pytest.fail("".join(printed))
        yield process
    finally:
        process.kill()
        process.communicate()


def write_nats_config(folder: Path) -> tuple[Path, int]:
    """The configuration of the servers with ports that are free here, and the one for clients."""
    text, port = (DEPLOY / "nats.conf").read_text(), free_port()
    assert "jetstream" not in text
    text = text.replace("port: 4222", f'listen: "127.0.0.1:{port}"').replace("127.0.0.1:8222", "127.0.0.1:-1")
    text = text.replace("port: 6222", 'listen: "127.0.0.1:-1"')
    (folder / "nats.conf").write_text(re.sub(r"routes: \[.*?\]", "", text, flags=re.DOTALL))
    return folder / "nats.conf", port


def ask(url: str, key: str = "") -> Any:
    """The JSON at a URL."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urlopen(Request(url, headers=headers), timeout=DEADLINE_S) as answer:
        return json.load(answer)


def test_replicas_behind_the_proxy_are_one_hub_and_outlive_each_other(postgres_url: str, tmp_path: Path) -> None:
    config, nats_port = write_nats_config(tmp_path)
    password, ports, site, check = "p" + secrets.token_hex(8), [free_port(), free_port()], free_port(), free_port()
    env = {
        "DATABASE_URL": postgres_url,
        "NATS_URL": f"nats://waypost:{password}@127.0.0.1:{nats_port}",
        "NATS_PASSWORD": password,
        "WAYPOST_SECRET": secrets.token_hex(32),
        "WAYPOST_SITE": f":{site}",
        "WAYPOST_PROXY_CHECK": str(check),
        "WAYPOST_REPLICAS": " ".join(f"127.0.0.1:{port}" for port in ports),
        "HOME": str(tmp_path),
    }
    with ExitStack() as stack:
        stack.enter_context(running(NATS, "-c", config, ready=lambda line: "Server is ready" in line, **env))
        hubs = []
        for number, port in enumerate(ports):
            mine = {**env, "WAYPOST_DATA": str(tmp_path / f"data-{number}")}
            serve = (sys.executable, "-m", "waypost", "serve", "waypost.yaml", "--host", "0.0.0.0", "--port", str(port))
            hubs.append(stack.enter_context(running(*serve, ready=lambda line: "is ready at" in line, **mine)))
        caddy = (SCRIPTS / "caddy", "run", "--config", "Caddyfile")
        stack.enter_context(running(*caddy, ready=lambda line: "serving initial configuration" in line, **env))

        # As in the head of the compose file.
        create = [sys.executable, "-m", "waypost", "keys", "create", "--id", "ada", "--role", "admin"]
        mine = {**os.environ, **env, "WAYPOST_DATA": str(tmp_path / "data-0")}
        made = subprocess.run(create, cwd=DEPLOY, env=mine, capture_output=True, text=True, timeout=DEADLINE_S)
        assert made.returncode == 0, made.stderr
        key = made.stdout.split()[-1]

        health = ask(f"http://127.0.0.1:{check}/health")
        assert (health["status"], health["bus"], health["replicas"]) == ("ok", "ok", 2)
        base = f"http://127.0.0.1:{site}"
        seen = {ask(f"{base}/health")["replica"] for _ in range(20)}
        assert len(seen) == 2

        # The proxy passes an event on while the response is open.
        request = Request(f"{base}/api/v1/events", headers={"Authorization": f"Bearer {key}"})
        with urlopen(request, timeout=DEADLINE_S) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert stream.readline()

        hubs[0].kill()
        hubs[0].wait()
        assert {ask(f"{base}/health")["status"] for _ in range(20)} == {"ok"}
        with pytest.raises(URLError):
            ask(f"{base}/metrics")
