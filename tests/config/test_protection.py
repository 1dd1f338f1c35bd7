from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import Finding, examine, load
from waypost.config.loader import MAX_NAMES, find_losses

HEAD = 'version: "1"\nserver: {name: demo}\n'
HASH = "sha256:" + "0" * 64
OTHER_HASH = "sha256:" + "1" * 64
TAIL = "prompts:\n  greeting:\n    template: This end of the file is longer than what is compared of it.\n"
KEYS = f'auth:\n  anonymous: false\n  keys:\n    - {{id: ci, hash: "{HASH}", roles: [agent]}}\n'
OAUTH = "oauth: {issuer: 'https://login.test/', resource: 'https://hub.test/mcp', jwks: 'https://login.test/keys'}"
SHELL = "  - {name: no-shell, type: mcp_restriction, config: {tool_pattern: shell}}\n"
MAIL = "  - {name: no-mail, type: mcp_restriction, config: {tool_pattern: mail}}\n"
RULES = f"policies:\n{SHELL}{MAIL}"


def losses(folder: Folder, before: Mapping[str, str], after: Mapping[str, str | None]) -> list[Finding]:
    """The losses between two states of the files; None removes a file, and the others stay."""
    path = folder.path / "waypost.yaml"
    for name, text in before.items():
        folder.write(name, text)
    old = load(path, {})
    for name, given in after.items():
        if given is None:
            (folder.path / name).unlink()
        else:
            folder.write(name, given)
    return find_losses(old, load(path, {}))


def loss(folder: Folder, before: str, after: str) -> str | None:
    """The loss when a file is changed, if any."""
    found = losses(folder, {"waypost.yaml": before}, {"waypost.yaml": after})
    if not found:
        return None
    (only,) = found
    assert only.severity == "error"
    return f"{only.key}: {only.message} [{only.code}]"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (KEYS, "", "auth: the section is gone"),
        ("auth: {anonymous: {roles: [guest]}}\n", "", "auth: the section is gone"),
        (KEYS, "auth:\n", "callers without a key would be accepted"),
        (KEYS, "auth: {}\n", "callers without a key would be accepted"),
        (KEYS, "auth: {keys: []}\n", "callers without a key would be accepted"),
        (KEYS, KEYS.replace("anonymous: false", "anonymous:"), "callers without a key would be accepted"),
        ("auth: {anonymous: {roles: [guest]}}\n", "auth: {}\n", "callers without a key would be accepted"),
        (f"auth: {{{OAUTH}}}\n", "auth: {keys: []}\n", "callers without a key would be accepted"),
        (KEYS, "auth: {anonymous: false}\n", "all keys and the authorization server are gone"),
        (KEYS, "auth:\n  anonymous: false\n  keys:\n", "all keys and the authorization server are gone"),
    ],
)
def test_an_implicit_loss_of_authentication_is_found(before: str, after: str, said: str, folder: Folder) -> None:
    found = loss(folder, HEAD + before + TAIL, HEAD + after + TAIL)
    assert found is not None
    assert said in found
    assert "if you mean it, write `" in found
    assert "CFG069" in found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (KEYS, "auth: {anonymous: true}\n"),
        (KEYS, "auth: {anonymous: {}}\n"),
        (KEYS, "auth: {anonymous: {roles: [guest]}}\n"),
        (KEYS, KEYS.replace("false", "true")),
        (KEYS, "auth: {anonymous: false, keys: []}\n"),
        (KEYS, f"auth: {{{OAUTH}}}\n"),
        (KEYS, KEYS.replace(HASH, OTHER_HASH)),
        (KEYS, KEYS.replace("[agent]", "[]")),
        (KEYS, KEYS.replace("  anonymous: false\n", "")),
        ("auth: {anonymous: true}\n", ""),
        ("auth: {}\n", ""),
        ("", KEYS),
        ("auth: {anonymous: {roles: [guest]}}\n", "auth: {anonymous: true}\n"),
    ],
)
def test_an_explicit_change_of_authentication_is_accepted(before: str, after: str, folder: Folder) -> None:
    assert loss(folder, HEAD + before + TAIL, HEAD + after + TAIL) is None


def test_an_older_setting_for_anonymous_callers_in_another_file_does_not_count(folder: Folder) -> None:
    before = {"waypost.yaml": f"include: [base.yaml]\n{KEYS}{TAIL}", "base.yaml": "auth: {anonymous: true}\n"}
    after = f"include: [base.yaml]\n{TAIL}"

    (found,) = losses(folder, before, {"waypost.yaml": after})
    assert "callers without a key would be accepted" in found.message

    edited = {"waypost.yaml": after, "base.yaml": "auth: {anonymous: {roles: [guest]}}\n"}
    assert losses(folder, before, edited) == []


def test_the_last_key_of_a_file_may_be_removed(folder: Folder) -> None:
    two = HEAD + KEYS + f'    - {{id: dev, hash: "{OTHER_HASH}"}}\n'
    assert loss(folder, two, HEAD + KEYS) is None


def test_permissions_at_a_cut_end_of_the_file_are_lost(folder: Folder) -> None:
    key = f'auth:\n  keys:\n    - id: ci\n      hash: "{HASH}"\n'
    found = loss(folder, HEAD + key + "      roles: [agent]\n", HEAD + key)
    assert found is not None
    assert "the rights of callers would change, but the file no longer ends as it did" in found
    assert loss(folder, HEAD + key + "      roles: [agent]\n", HEAD + "toolkits: [os, os]\n" + key) == found
    assert loss(folder, HEAD + key + "      roles: [agent]\n", HEAD + key + "...\n") is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (RULES + TAIL, TAIL, "the section is gone, and with it `no-shell`, `no-mail`"),
        (TAIL + RULES, TAIL, "the section is gone, and with it `no-shell`, `no-mail`"),
        (RULES + TAIL, "policies:\n" + TAIL, "the section is gone, and with it `no-shell`, `no-mail`"),
        (TAIL + RULES, TAIL + f"policies:\n{SHELL}", "`no-mail` would be gone or changed, but the file no longer ends"),
        (
            TAIL + RULES,
            f"toolkits: [{'os, ' * 90}]\n{TAIL}policies:\n{SHELL}",
            "`no-mail` would be gone or changed, but the file no longer",
        ),
        (
            TAIL + "policies:\n  - name: no-shell\n    type: mcp_restriction\n    config:\n      tool_pattern: shell\n"
            "      action: deny\n    roles:\n      - agent\n      - guest\n",
            TAIL + "policies:\n  - name: no-shell\n    type: mcp_restriction\n    config:\n      tool_pattern: shell\n"
            "      action: deny\n    roles:\n      - agent\n",
            "`no-shell` would be gone or changed, but the file no longer ends",
        ),
    ],
    ids=["gone", "cut before it", "cut after its key", "last rule cut", "half a longer file", "rule cut"],
)
def test_an_implicit_loss_of_policies_is_found(before: str, after: str, said: str, folder: Folder) -> None:
    found = loss(folder, HEAD + before, HEAD + after)
    assert found is not None
    assert found.startswith(f"policies: {said}")
    assert found.endswith("[CFG069]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RULES + TAIL, "policies: []\n" + TAIL),
        (TAIL + RULES, TAIL + "policies: []\n"),
        (RULES + TAIL, f"policies:\n{MAIL}" + TAIL),
        (TAIL + RULES, TAIL + f"policies:\n{SHELL}...\n"),
        (TAIL + RULES, TAIL + RULES.replace("mail}", "post}")),
        (TAIL + RULES, TAIL + RULES.replace("tool_pattern: mail", "tool_pattern: m")),
        (RULES + TAIL, RULES.replace("name: no-mail", "name: no-mail, enabled: false") + TAIL),
        (RULES.replace("name: no", "enabled: false, name: no") + TAIL, TAIL),
        ("policies: []\n" + TAIL, TAIL),
        (TAIL, TAIL + RULES),
    ],
    ids=[
        *("emptied", "emptied at the end", "removed", "removed and marked", "changed at the end", "shorter at the end"),
        *("disabled", "disabled ones", "none", "new"),
    ],
)
def test_an_explicit_change_of_policies_is_accepted(before: str, after: str, folder: Folder) -> None:
    assert loss(folder, HEAD + before, HEAD + after) is None


def test_only_some_of_many_lost_policies_are_named(folder: Folder) -> None:
    rules = "".join(SHELL.replace("no-shell", f"rule-{number}") for number in range(MAX_NAMES + 3))
    found = loss(folder, f"{HEAD}policies:\n{rules}{TAIL}", HEAD + TAIL)
    assert found is not None
    assert "`rule-4` and 3 more; if" in found


INCLUDING = {
    "waypost.yaml": f"{HEAD}include: ['team/*.yaml']\npolicies:\n{SHELL}",
    "team/a.yaml": f"policies:\n{MAIL}{TAIL}",
    "team/b.yaml": "toolkits: [os]\n",
}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({"team/a.yaml": TAIL}, "the section is gone, and with it `no-mail`"),
        (
            {"team/a.yaml": None},
            "`no-mail` would be gone with this file; if you mean it, write `policies: []` in it first",
        ),
        ({"waypost.yaml": f"{HEAD}policies:\n{SHELL}"}, "`no-mail` would be gone with this file"),
    ],
    ids=["section", "file", "include"],
)
def test_policies_of_one_of_several_files_are_not_lost_either(
    after: dict[str, str | None], said: str, folder: Folder
) -> None:
    (found,) = losses(folder, INCLUDING, after)
    assert Path(found.file) == folder.path / "team/a.yaml"
    assert found.message.startswith(said)


def test_policies_may_move_from_one_file_to_another(folder: Folder) -> None:
    assert losses(folder, INCLUDING, {"team/a.yaml": TAIL, "team/b.yaml": f"policies:\n{MAIL}"}) == []


def test_a_file_without_protection_may_be_removed(folder: Folder) -> None:
    assert losses(folder, INCLUDING, {"team/b.yaml": None}) == []


@pytest.mark.parametrize("text", ["", "# later\n", "---\n"])
@pytest.mark.parametrize("name", ["waypost.yaml", "team/b.yaml"])
def test_an_emptied_file_is_the_only_finding(name: str, text: str, folder: Folder) -> None:
    (found,) = losses(folder, INCLUDING, {name: text})
    assert (Path(found.file), found.code) == (folder.path / name, "CFG034")
    assert found.message == "the file is empty and was not before; if you mean it, write `{}` into it"


def test_a_file_may_be_emptied_explicitly(folder: Folder) -> None:
    assert losses(folder, INCLUDING, {"team/b.yaml": "{}\n"}) == []


def test_an_empty_file_may_stay_empty(folder: Folder) -> None:
    assert losses(folder, {"waypost.yaml": ""}, {"waypost.yaml": "# nothing\n"}) == []


def test_an_emptied_toolkit_is_found(folder: Folder) -> None:
    before = {"waypost.yaml": "toolkits: [./tools.py]\n", "tools.py": "a = 1\n"}
    (found,) = losses(folder, before, {"tools.py": ""})
    assert (Path(found.file), found.code) == (folder.path / "tools.py", "CFG034")
    assert found.message.endswith("if you mean it, remove its name from the configuration")


@pytest.mark.parametrize("left", [{}, {"team/b.yaml": "# later\n"}], ids=["nothing", "an empty file"])
def test_a_pattern_that_no_longer_matches_settings_is_found(left: dict[str, str | None], folder: Folder) -> None:
    before = {"waypost.yaml": f"{HEAD}include: ['team/*.yaml']\n", "team/a.yaml": TAIL}
    (found,) = losses(folder, before, {"team/a.yaml": None, **left})
    assert (Path(found.file).name, found.line, found.code) == ("waypost.yaml", 3, "CFG034")
    assert found.message.startswith("the pattern `team/*.yaml` no longer matches a file with settings")


def test_a_pattern_may_be_removed(folder: Folder) -> None:
    before = {"waypost.yaml": f"{HEAD}include: ['team/*.yaml']\n{TAIL}", "team/a.yaml": "toolkits: [os]\n"}
    assert losses(folder, before, {"waypost.yaml": HEAD + TAIL}) == []


def test_a_match_that_has_become_a_directory_is_found(folder: Folder) -> None:
    path = folder.path / "waypost.yaml"
    for name, text in INCLUDING.items():
        folder.write(name, text)
    old = load(path, {})
    (folder.path / "team/b.yaml").unlink()
    (folder.path / "team/b.yaml").mkdir()

    (found,) = find_losses(old, load(path, {}))

    assert (Path(found.file), found.code) == (folder.path / "team/b.yaml", "CFG002")


BLOCKS = f"""\
version: "1"
toolkits:
  - os
auth:
  keys:
    - id: ci
      hash: {HASH}
      roles:
        - agent
        - guest
  anonymous: false
policies:
  - name: no-shell
    type: mcp_restriction
    config:
      tool_pattern: shell
      action: deny
    roles:
      - agent
      - guest
  - name: no-mail
    type: mcp_restriction
    config:
      tool_pattern: mail
    hide: true
"""


@pytest.mark.parametrize("added", ["", f"# {'longer ' * 100}\n"], ids=["the same text", "a longer text"])
def test_no_cut_of_a_text_opens_the_hub_or_loses_a_policy(added: str, folder: Folder) -> None:
    before = folder.load(BLOCKS)
    accepted = 0
    for end in range(len(BLOCKS)):
        before.path.write_text(added + BLOCKS[:end])
        after, findings = examine(before.path, {})
        if after is not None and not (findings or find_losses(before, after)):
            assert (after.config.auth, after.config.policies) == (before.config.auth, before.config.policies)
            accepted += 1
    assert accepted < 3
