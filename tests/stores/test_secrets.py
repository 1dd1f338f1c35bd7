"""The secrets of the configuration as they are searched for in JSON text."""

from __future__ import annotations

from waypost.stores.secrets import StoredSecrets


def test_secrets_may_be_given_by_an_iterator() -> None:
    secrets = StoredSecrets()
    secrets.set(iter(["sk-0123456789", "ümläut-key"]))

    assert secrets.are_in('{"text":"It is sk-0123456789."}')
    assert secrets.are_in('{"text":"It is \\u00fcml\\u00e4ut-key."}')
    assert secrets.hide({"text": "It is sk-0123456789."}) == {"text": "It is [REDACTED]."}
