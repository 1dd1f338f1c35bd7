"""ContextForge in front of another MCP server, from the virtual environment that `CONTEXTFORGE_VENV` names.

It needs versions of libraries of its own, takes half a minute to start, and wants a token with each request, which is
left in the file `token` as soon as it knows the upstream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.contenders.common import UPSTREAM, options

VENV = "CONTEXTFORGE_VENV"
USER = "admin@example.com"
WITHIN = 180.0
SETTINGS = {
    "DATABASE_URL": "sqlite:///./contextforge.db",
    "JWT_SECRET_KEY": "only-for-this-benchmark-on-loopback-0123456789",
    "AUTH_ENCRYPTION_SECRET": "only-for-this-benchmark-on-loopback-0123456789",
    "PLATFORM_ADMIN_EMAIL": USER,
    "PLATFORM_ADMIN_PASSWORD": "Only-for-this-benchmark-0!",
    "MCPGATEWAY_UI_ENABLED": "false",
    "SSRF_ALLOW_LOCALHOST": "true",
    "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
    "USE_STATEFUL_SESSIONS": "false",
    "JSON_RESPONSE_ENABLED": "true",
    "RATE_LIMITING_ENABLED": "false",
    "LOG_LEVEL": "ERROR",
}


def token(programs: Path) -> str:
    """A token as its own program makes them."""
    command = [str(programs / "python"), "-m", "mcpgateway.utils.create_jwt_token", "--username", USER, "--admin"]
    made = subprocess.run([*command, "--exp", "600"], check=True, capture_output=True, text=True)
    return made.stdout.split()[-1]


def post(url: str, body: dict[str, str], bearer: str) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # our own, on loopback
    urllib.request.urlopen(request, timeout=20).close()


def register(programs: Path, port: int) -> None:
    """Tell it of the upstream as soon as it listens."""
    bearer, until = token(programs), time.monotonic() + WITHIN
    row = {"name": "up", "url": os.environ[UPSTREAM], "transport": "STREAMABLEHTTP"}
    while time.monotonic() < until:
        try:
            post(f"http://127.0.0.1:{port}/gateways", row, bearer)
        except OSError:
            time.sleep(0.5)
        else:
            Path("token.new").write_text(bearer)
            Path("token.new").rename("token")
            return


if __name__ == "__main__":
    chosen = options()
    programs = Path(os.environ[VENV]) / "bin"
    os.environ.update(SETTINGS)
    os.environ.pop("PYTHONPATH", None)
    if UPSTREAM in os.environ and os.fork() == 0:
        register(programs, chosen.port)
        sys.exit()
    serve = [str(programs / "mcpgateway"), "mcpgateway.main:app", "--host", "127.0.0.1", "--port", str(chosen.port)]
    os.execv(serve[0], serve)  # so that whoever stops this stops it
