"""Which URLs the hub does not fetch: a table of tricks, none of which makes a connection."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.outbound.internet import PUBLIC, Names, dialling
from tests.protocol.conftest import asynchronous
from waypost.outbound.egress import Egress, EgressFailed, EgressRefused, check_url, is_public

LITERALS = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8420/mcp",
    "http://127.8.8.8/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.254/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://192.0.0.1/",
    "http://192.0.0.192/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.7/",
    "http://224.0.0.1/",
    "http://239.255.255.250:1900/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[2606:4700::1111%251]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
]
SPELLINGS = [
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0X7F000001/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0x7f.0.0.1/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0x/",
    "http://127.0.0.01/",
    "http://2852039166/",
    "http://425.510.425.510/",
    "http://127.0.0.1./",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://127\u30020\u30020\u30021/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1%00.example.com/",
    "http://127.0.0.1%2f@example.com/",
]
NAMES = [
    "http://localhost/",
    "http://LOCALHOST:8420/",
    "http://localhost./",
    "http://anything.localhost/",
    "https://localhost/",
    "http://intranet.example/",
    "http://intranet.example./",
    "http://half.example/",
    "http://six.example/",
    "http://mapped.example/",
    "http://linked.example/",
    "http://metadata.google.internal/computeMetadata/v1/",
]
SHAPES = [
    "file:///etc/passwd",
    "ftp://example.com/",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "dict://127.0.0.1:11211/stat",
    "data:text/plain,hello",
    "jar:http://example.com!/",
    "ws://example.com/",
    "javascript:alert(1)",
    "//example.com/",
    "example.com",
    "/etc/passwd",
    "",
    "http://",
    "http:///path",
    "http:127.0.0.1",
    "http://user@public.example/",
    "http://user:password@public.example/",
    "http://@public.example/",
    "http://public.example@127.0.0.1/",
    "http://public.example:80@127.0.0.1/",
    "http://public.example\\@127.0.0.1/",
    "http:\\\\127.0.0.1\\",
    "http://127.0.0.1\\.public.example/",
    "http://public.example/\r\nHost: intranet.example",
    "http://public.example\t/",
    "http://public.exam\nple/",
    "http://public.example /",
    " http://127.0.0.1/",
    "http://public.example/\x00",
    "http://[::1/",
    "http://[::1].public.example/",
    "http://public.example:99999/",
    "http://public.example:port/",
    "http://a..example/",
    "http://.example/",
    "http://*.example/",
    f"http://{'a' * 64}.example/",
    f"http://{'a.' * 150}example/",
    f"http://public.example/{'a' * 9000}",
]
TABLE = LITERALS + SPELLINGS + NAMES + SHAPES


def name_server() -> Names:
    return Names(
        public_example=[[PUBLIC]],
        intranet_example=[["10.1.2.3"]],
        half_example=[[PUBLIC, "192.168.0.1"]],
        six_example=[["fd12:3456::1"]],
        mapped_example=[["::ffff:10.0.0.1"]],
        linked_example=[["fe80::1%2"]],
        metadata_google_internal=[["169.254.169.254"]],
    )


@asynchronous
async def test_no_trick_of_the_table_makes_a_connection() -> None:
    egress = Egress(lookup=name_server())
    refused = []
    with dialling() as dialled:
        for url in TABLE:
            try:
                await egress.request("GET", url)
            except EgressRefused as error:
                assert error.message.endswith("."), error.message
                refused.append(url)
            except EgressFailed:
                continue
    await egress.close()

    let_through = sorted(set(TABLE) - set(refused))
    assert dialled == []
    assert len(refused) == len(TABLE) >= 60, f"tried {len(TABLE)}, refused {len(refused)}; not: {let_through}"
    assert len(set(TABLE)) == len(TABLE)


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.215.14", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.0.1.1"),
        *("2606:4700::1111", "2a00:1450:4001:81b::200e", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2001:4860::8888"),
    ],
)
def test_an_address_of_the_open_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://public.example/a?b=c#d", "public.example"),
        ("HTTPS://Public.Example.:8443/", "public.example."),
        ("http://8.8.8.8/", "8.8.8.8"),
        ("http://[2606:4700::1111]/", "2606:4700::1111"),
        ("http://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("http://1e100.example/", "1e100.example"),
        ("http://8.8.8.8?@127.0.0.1/", "8.8.8.8"),
        ("http://8.8.8.8#@127.0.0.1/", "8.8.8.8"),
        ("http://dashed-name_1.example/", "dashed-name_1.example"),
    ],
)
def test_a_plain_url_is_accepted(url: str, host: str) -> None:
    assert check_url(url, allow_private=False).raw_host == host


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost/", "http://[::1]/", "http://10.0.0.1/"])
def test_a_private_address_is_accepted_if_it_is_allowed(url: str) -> None:
    assert check_url(url, allow_private=True)


@pytest.mark.parametrize("url", [*SPELLINGS[:10], "file:///etc/passwd", "http://a@127.0.0.1/", "http://[fe80::1%25a]/"])
def test_unusual_spellings_are_refused_even_if_private_addresses_are_allowed(url: str) -> None:
    with pytest.raises(EgressRefused):
        check_url(url, allow_private=True)
