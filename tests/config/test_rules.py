import os

import pytest

from tests.config.conftest import Folder
from waypost.runtime.assembly import check
from waypost.stores import urls


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 30.0),
        ("server: {toolTimeoutMs: 500}", 0.5),
        ("mcp: {tool_timeout_ms: 500}", 0.5),
        ("mcp: {tool_timeout_ms: 500}\nserver: {toolTimeoutMs: 500}", 0.5),
        ("mcp: {tool_timeout_ms: }\nserver: {toolTimeoutMs: 500}", 0.5),
    ],
)
def test_the_tool_timeout_may_be_in_either_section(folder: Folder, text: str, seconds: float) -> None:
    assert folder.load(text).config.tool_timeout == seconds


def test_two_different_tool_timeouts_are_an_error(folder: Folder) -> None:
    found = folder.only("server: {tool_timeout_ms: 500}\nmcp:\n  tool_timeout_ms: 600\n")
    assert (found.code, found.line, found.key) == ("CFG060", 3, "mcp.tool_timeout_ms")
    assert "`server.tool_timeout_ms`" in found.message


@pytest.mark.parametrize("key", ["toolTimeoutMs", "tool_timeout_ms"])
def test_a_finding_names_a_key_in_the_spelling_of_the_file(folder: Folder, key: str) -> None:
    assert folder.only(f"server: {{{key}: long}}\n").key == f"server.{key}"


def test_a_toolkit_file_must_exist(folder: Folder) -> None:
    folder.write("here.py", "")
    found = folder.only("toolkits:\n  - ./here.py:Kit\n  - use: ./gone.py:Kit\n")
    assert (found.code, found.line, found.key) == ("CFG041", 3, "toolkits[1].use")
    assert found.message.endswith("/gone.py` does not exist; check the path")


def test_a_toolkit_module_is_not_searched(folder: Folder) -> None:
    assert folder.load("toolkits: ['no.such.module:Kit', module]\n").warnings == ()


@pytest.mark.parametrize("reference", ["not good", "a:b:c", "https://example.com/x"])
def test_a_reference_that_is_neither_a_file_nor_a_module_is_an_error(folder: Folder, reference: str) -> None:
    assert folder.only(f"toolkits: ['{reference}']\n").code == "CFG040"


@pytest.mark.parametrize("text", ["", "store:\n", "store: {}\nbus: {}\n"])
def test_a_hub_from_a_file_has_a_durable_store_and_an_automatic_bus(folder: Folder, text: str) -> None:
    config = folder.load(text).config
    assert (config.store.url, config.bus.url) == (urls.DEFAULT, "auto")


@pytest.mark.parametrize("url", ["redis://cache", "nats", "nats://", "postgres", "postgres:x", "nats://a?tls=yes"])
def test_a_bus_that_does_not_exist_is_an_error(folder: Folder, url: str) -> None:
    (found,) = check(folder.write("waypost.yaml", f"bus:\n  url: {url}\n"))
    assert (found.code, found.line, found.key) == ("CFG062", 2, "bus.url")


@pytest.mark.parametrize("section", ["store", "bus"])
def test_a_url_that_is_not_text_is_one_finding(folder: Folder, section: str) -> None:
    assert folder.only(f"{section}: {{url: 7}}\n").code == "CFG012"
    assert folder.only(f"{section}: {{url: ''}}\n").code == "CFG013"


def oauth(jwks: str) -> str:
    return f"auth:\n  oauth:\n    issuer: https://i.example\n    resource: https://h.example\n    jwks: {jwks}\n"


def test_a_file_of_public_keys_is_relative_to_the_configuration_file(folder: Folder) -> None:
    folder.write("keys/set.json", "{}")
    folder.write("team/auth.yaml", oauth("../keys/set.json"))
    auth = folder.load("include: [team/auth.yaml]").config.auth
    assert auth is not None
    assert auth.oauth is not None
    assert auth.oauth.jwks is not None
    assert os.path.samefile(auth.oauth.jwks, folder.path / "keys" / "set.json")


def test_a_file_of_public_keys_must_exist(folder: Folder) -> None:
    found = folder.only(oauth("gone.json"))
    assert (found.code, found.line, found.key) == ("CFG065", 5, "auth.oauth.jwks")
    assert found.message.endswith("/gone.json` does not exist; check the path")


def test_an_address_of_public_keys_is_not_changed(folder: Folder) -> None:
    auth = folder.load(oauth("https://i.example/keys")).config.auth
    assert auth is not None
    assert auth.oauth is not None
    assert auth.oauth.jwks == "https://i.example/keys"


def test_public_keys_that_are_not_text_are_one_finding(folder: Folder) -> None:
    assert folder.only(oauth("7")).code == "CFG012"
    assert folder.only(oauth("''")).code == "CFG013"


def test_a_directory_of_skills_that_is_a_file_is_an_error(folder: Folder) -> None:
    folder.write("skills.py", "")
    found = folder.only("skills:\n  dynamic: ./skills.py\n")
    assert (found.code, found.line, found.key) == ("CFG068", 2, "skills.dynamic")


def test_a_missing_directory_of_skills_is_a_warning(folder: Folder) -> None:
    (found,) = folder.load("skills: {dynamic: ./not-yet-there}").warnings
    assert (found.code, found.line, found.key) == ("CFG082", 1, "skills.dynamic")


@pytest.mark.parametrize("url", ["auto", "local", "local://", "postgres", "postgresql", "postgresql://h/d"])
def test_a_bus_may_be_the_server_of_the_store(folder: Folder, url: str) -> None:
    assert check(folder.write("waypost.yaml", f"store: {{url: 'postgresql://h/d'}}\nbus: {{url: '{url}'}}\n")) == []
