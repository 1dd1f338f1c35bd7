"""The section `auth`: keys, and callers without one."""

from __future__ import annotations

import pytest

from tests.configured.conftest import Folder
from waypost.identity import digest, new_key
from waypost.runtime.assembly import check

HASH = "sha256:" + "0" * 64
ISSUER = {"issuer": "https://issuer.example", "resource": "https://hub.example/mcp", "jwks": "https://issuer.example/k"}


def test_keys_and_the_roles_of_anonymous_callers_come_from_the_section_auth(folder: Folder) -> None:
    key = new_key()
    folder.write(
        "waypost.yaml",
        'version: "1"\nauth:\n  anonymous: {roles: [guest]}\n'
        f'  keys: [{{id: ci, hash: "{digest(key)}", roles: [agent], scopes: [read]}}]\n',
    )
    auth = folder.hub().auth
    assert auth is not None
    known = auth.known({b"authorization": f"Bearer {key}".encode()})
    assert known is not None
    assert (known.id, known.roles, known.scopes) == ("ci", ("agent",), ("read",))
    anonymous = auth.known({})
    assert anonymous is not None
    assert anonymous.roles == ("guest",)


def test_anonymous_callers_are_refused_if_the_file_says_so(folder: Folder) -> None:
    folder.write("waypost.yaml", 'version: "1"\nauth: {anonymous: false}\n')
    auth = folder.hub().auth
    assert auth is not None
    assert auth.known({}) is None
    assert not auth.allows_anonymous


def test_an_invalid_hash_of_a_key_is_a_finding_at_its_line(folder: Folder) -> None:
    folder.write("waypost.yaml", 'version: "1"\nauth:\n  keys:\n    - {id: ci, hash: secret}\n')
    (found,) = folder.findings()
    assert (found.line, found.key) == (4, "auth.keys[0].hash")


@pytest.mark.parametrize(
    ("keys", "key", "sentence"),
    [
        (["anonymous"], "auth.keys[0]", "A key cannot have the id 'anonymous'"),
        (["hub"], "auth.keys[0].id", "The id hub belongs to the hub itself; choose another"),
        (["ann", "bob"], "auth.keys[1]", "The keys 'ann' and 'bob' have the same hash"),
    ],
)
def test_an_invalid_key_is_a_finding(keys: list[str], key: str, sentence: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"auth: {{keys: {[{'id': one, 'hash': HASH} for one in keys]}}}\n")

    (found,) = folder.findings()

    assert (found.key, found.message, found.code, found.line) == (key, sentence, "CFG066", 1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"issuer": "x"}, "The OAuth issuer must be a URL"),
        ({"resource": "https://hub.example/mcp#part"}, "The OAuth resource must be a URL without query and fragment"),
        ({"jwks": "http://issuer.example/k"}, "The address of the key set must be an https URL; plain http is for"),
        ({"jwks": "./tools.py"}, "tools.py does not hold a JSON object"),
        ({"scopes": ["a b"]}, "There can be no scope 'a b' here"),
    ],
)
def test_an_invalid_authorization_server_is_a_finding(change: dict[str, object], sentence: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"auth: {{oauth: {ISSUER | change}}}\n")

    (found,) = folder.findings()

    assert (found.key, found.code) == ("auth.oauth", "CFG066")
    assert sentence in found.message


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("auth: {anonymous: false}\nworkers: {port: 0}", []),
        ("auth: {anonymous: false}\nworkers: {port: 0, token: s3cret}", []),
        ("auth: {anonymous: {roles: [agent]}}\nworkers: {port: 0}", []),
        ("workers: {port: 0}", []),
    ],
)
def test_workers_without_a_token_are_no_finding_with_any_setting_of_auth(
    text: str, codes: list[str], folder: Folder
) -> None:
    folder.write("waypost.yaml", f"{text}\n")

    findings = check(folder.config)

    assert [found.code for found in findings] == codes
    assert all((found.key, found.line, found.severity) == ("workers", 2, "warning") for found in findings)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("server: {host: 0.0.0.0}", "server.host"),
        ("server: {host: 0.0.0.0}\nauth: {anonymous: true}", "server.host"),
        ("workers: {host: 0.0.0.0}", "workers.host"),
    ],
)
def test_a_public_address_without_authentication_is_a_finding_only_of_check(
    text: str, key: str, folder: Folder
) -> None:
    folder.write("waypost.yaml", f"{text}\n")

    (found,) = check(folder.config)

    assert (found.key, found.code, found.line) == (key, "CFG067", 1)
    folder.hub()  # it may be served at another address


@pytest.mark.parametrize(
    "text",
    [
        "server: {host: 0.0.0.0}\nauth: {anonymous: false}",
        "server: {host: 0.0.0.0, allowAnonymousRemote: true}",
        "server: {host: '::1'}",
        "server: {host: 127.0.0.2}",
        "workers: {host: 0.0.0.0, token: secret}",
    ],
)
def test_an_address_with_authentication_or_on_loopback_has_no_findings(text: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"{text}\n")

    assert check(folder.config) == []
