"""How MCP clients are connected to a hub: the entry for each client's file, and a link where it has one."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub
from waypost.config.clients import CLIENTS, Client, Machine, Server
from waypost.config.edits import set_entry
from waypost.errors import InvalidParams, WaypostError
from waypost.settings import is_loopback

KEY_VARIABLE: Final = "WAYPOST_KEY"
_USER: Final = Machine("linux", Path("~"), {})
"""The files are shown for a user's home directory, not for that of the hub."""


class ConnectQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hub as the client reaches it; left out, the address that this replica listens on."""

    url: Annotated[str, Meta(max_length=2048)] = ""
    name: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "waypost"


class ClientEntry(msgspec.Struct, frozen=True):
    """What to put into the file of a client; `link` opens the client."""

    client: str
    title: str
    file: str
    text: str
    then: str
    link: str = ""


class ClientEntries(msgspec.Struct, frozen=True):
    """The entries for all clients, which find the key in the variable."""

    url: str
    variable: str
    clients: list[ClientEntry]


async def list_clients(hub: ManagedHub, query: ConnectQuery) -> ClientEntries:
    """List the entries that connect MCP clients to this hub."""
    url = (query.url or hub.replicas.address).rstrip("/")
    if query.url and not url.startswith(("http://", "https://")):
        raise InvalidParams(f"{query.url} is not a URL that begins with http:// or https://.")
    url = url if url.endswith("/mcp") else f"{url}/mcp"
    server = Server(query.name, url=url, key_variable=KEY_VARIABLE)
    return ClientEntries(url, KEY_VARIABLE, [_describe(name, one, server) for name, one in CLIENTS.items()])


def _describe(name: str, client: Client, server: Server) -> ClientEntry:
    file = str(client.user(_USER))
    try:
        entry = client.entry(server)
    except WaypostError:  # its file has no servers with a URL
        return _bridge(name, client, file, server)
    text = set_entry("", client.form, (client.section, server.name), entry)
    plain = msgspec.json.encode(entry)
    link = ""
    if name == "cursor":
        config = base64.b64encode(plain).decode()
        link = "cursor://anysphere.cursor-deeplink/mcp/install?" + urlencode({"name": server.name, "config": config})
    elif name == "vscode":
        link = "vscode:mcp/install?" + quote(msgspec.json.encode({"name": server.name, **entry}))
    return ClientEntry(name, client.title, file, text, client.then, link)


def _bridge(name: str, client: Client, file: str, server: Server) -> ClientEntry:
    """The entry of a client that only starts programs: one that passes messages on to the URL."""
    host = urlsplit(server.url).hostname or ""
    insecure = ["--allow-http"] if server.url.startswith("http:") and not is_loopback(host) else []
    header = f"Authorization:Bearer ${{{KEY_VARIABLE}}}"
    entry = {
        "command": "npx",
        "args": ["-y", "mcp-remote", server.url, "--header", header, *insecure],
        "env": {KEY_VARIABLE: "wp_..."},
    }
    text = set_entry("", client.form, (client.section, server.name), entry)
    return ClientEntry(name, client.title, file, text, f"put a key into `env`, and {client.then}; it needs Node.js")


ENTRIES: Final = ClientEntries(
    "http://127.0.0.1:8420/mcp",
    KEY_VARIABLE,
    [ClientEntry("codex", "Codex", "~/.codex/config.toml", "[mcp_servers.waypost]\n", "`codex mcp list` shows it")],
)
