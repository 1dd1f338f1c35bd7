"""The section `auth`: keys, and callers without one."""

from __future__ import annotations

from tests.configured.conftest import Folder
from waypost.policy import digest, new_key


def test_keys_and_what_anonymous_callers_are_come_from_the_section_auth(folder: Folder) -> None:
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


def test_nobody_is_let_in_without_a_key_when_the_file_says_so(folder: Folder) -> None:
    folder.write("waypost.yaml", 'version: "1"\nauth: {anonymous: false}\n')
    auth = folder.hub().auth
    assert auth is not None
    assert auth.known({}) is None
    assert not auth.allows_anonymous


def test_a_key_whose_hash_is_none_is_a_finding_at_its_line(folder: Folder) -> None:
    folder.write("waypost.yaml", 'version: "1"\nauth:\n  keys:\n    - {id: ci, hash: secret}\n')
    (found,) = folder.findings()
    assert (found.line, found.key) == (4, "auth.keys[0].hash")
