"""The parsing of URLs, and allowed redirects."""

from __future__ import annotations

import pytest

from waypost.outbound.http1 import HttpError, parse_address


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://example.com", "example.com", "/"),
        ("http://example.com:80/mcp", "example.com", "/mcp"),
        ("https://example.com:443/mcp?a=b&c=%20d#part", "example.com", "/mcp?a=b&c=%20d"),
        ("https://example.com:80/", "example.com:80", "/"),
        ("HTTP://EXAMPLE.com:8080/A", "example.com:8080", "/A"),
        ("http://[::1]:8080/x", "[::1]:8080", "/x"),
        ("http://127.0.0.1:1/two words/ü", "127.0.0.1:1", "/two%20words/%C3%BC"),
        ("http://bücher.example/", "xn--bcher-kva.example", "/"),
    ],
)
def test_a_url_has_a_host_and_a_target(url: str, authority: str, target: str) -> None:
    address = parse_address(url)

    assert (address.authority, address.target) == (authority, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp",
        "/mcp",
        "ftp://example.com/",
        "http:///mcp",
        "http://no host/",
        "http://x:99999/",
        "http://x:y/",
        "http://[::1/",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(HttpError, match="the address is not valid") as caught:
        parse_address(url)

    assert not caught.value.sent


def test_a_url_cannot_smuggle_anything_into_the_head() -> None:
    address = parse_address("http://example.com/a\r\nX-Evil: 1")

    assert "\n" not in address.target + address.authority
    assert " " not in address.target


def test_a_name_and_a_password_in_a_url_are_credentials() -> None:
    address = parse_address("http://me:p%40ss@example.com/")

    assert address.credentials == "bWU6cEBzcw=="
    assert address.authority == "example.com"


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/mcp/", "/mcp/"),
        ("there", "/a/there"),
        ("http://example.com/mcp?x=1", "/mcp?x=1"),
        ("http://example.com:80/mcp", "/mcp"),
        ("//example.com/mcp", "/mcp"),
    ],
)
def test_a_redirect_to_the_same_origin_is_followed(location: str, target: str) -> None:
    there = parse_address("http://example.com/a/b").resolve_redirect(location)

    assert there is not None
    assert there.target == target


@pytest.mark.parametrize(
    "location",
    [
        "https://example.com/mcp",
        "http://example.com:81/mcp",
        "http://evil.example/mcp",
        "//evil.example/mcp",
        "http://example.com@evil.example/",
        "http://example.com.evil.example/",
        "ftp://example.com/",
        "http://[::1/",
    ],
)
def test_a_redirect_to_another_origin_is_not_followed(location: str) -> None:
    assert parse_address("http://example.com/a/b").resolve_redirect(location) is None
