"""Which URLs and addresses the hub may fetch from when somebody else chose them."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from waypost.errors import ToolError

LONGEST_URL: Final = 8192

_NEVER: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

# `is_global` differs between Python versions for these, so they are named here.
_CLOSED_V4: Final = tuple(ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24"))
_OPEN_V6: Final = ip_network("2000::/3")
_CLOSED_V6: Final = tuple(ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
_NAT64: Final = ip_network("64:ff9b::/96")


class EgressFailed(ToolError):
    """The server did not answer properly."""


class EgressRefused(ToolError):
    """The hub does not fetch that."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the open internet; tunnels that hide another address do not."""
    if isinstance(address, IPv4Address):
        return address.is_global and not address.is_multicast and not any(address in net for net in _CLOSED_V4)
    if address.scope_id is not None:
        return False
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    return address in _OPEN_V6 and not any(address in net for net in _CLOSED_V6)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for in live networks: mapped, or behind NAT64."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def checked_url(text: str, allow_private: bool) -> URL:
    """The URL, if its spelling is plain and its host is not a private address; names are looked up later."""
    url = _parsed(text)
    if url.scheme not in ("http", "https"):
        raise EgressRefused("Only http and https URLs are fetched.")
    if "@" in urlsplit(text).netloc:
        raise EgressRefused("A URL with a user name or password is not fetched.")
    host = url.raw_host or ""
    literal = _literal(host)
    if not allow_private and (_is_localhost(host) if literal is None else not is_public(literal)):
        raise EgressRefused(f"{host} is a private address, which is not fetched.")
    return url


def checked_addresses(host: str, found: list[str], allow_private: bool) -> list[str]:
    """What a name resolved to, if nothing of it is private."""
    if not allow_private and not all(is_public(ip_address(text)) for text in found):
        raise EgressRefused(f"{host} resolves to a private address, which is not fetched.")
    return found


def _parsed(text: str) -> URL:
    if len(text) > LONGEST_URL:
        raise EgressRefused(f"A URL of more than {LONGEST_URL} characters is not fetched.")
    if _NEVER.search(text):
        raise EgressRefused("A URL with spaces, control characters or backslashes is not fetched.")
    try:
        return URL(text)
    except ValueError:
        raise EgressRefused("That is not a URL.") from None


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address a host spells out, or nothing if it is a name; spellings that readers disagree on are refused."""
    if ":" in host:
        return _address(host)
    if not _NAME.fullmatch(host):
        raise EgressRefused("The host of the URL is not a name or an address.")
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return _address(host)
    return None


def _address(host: str) -> IPv4Address | IPv6Address:
    try:
        # A zone ("%eth0") means something on this machine only.
        return ip_address(host if "%" not in host else "")
    except ValueError:
        raise EgressRefused(f"{host} is not the usual spelling of an address.") from None


def _is_localhost(host: str) -> bool:
    name = host.rstrip(".")
    return name == "localhost" or name.endswith(".localhost")
