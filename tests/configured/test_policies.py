"""The section `policies`: invalid rules, and rules that change while the hub runs."""

from __future__ import annotations

import asyncio

import pytest

from tests.configured.conftest import CONFIG, ERAS, KIT, Folder, listening, more, using
from waypost import RemoteError

RULE = "policies:\n  - {name: quiet, type: mcp_restriction, config: {tool_pattern: speak}}\n"
SPOKEN = (KIT + more("whisper"), "policies: []\n")
HUSHED = (KIT, RULE.replace("speak}}", "whisper}, hide: true}"))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("type: rate_limit, config: {max_calls: many}", "Policy 'r': "),
        ("type: rate_limit, config: {max: 1}", "Policy 'r': "),
        ("type: rate_limit, config: {per: [color]}", "Policy 'r': per knows principal, capability and permission"),
        ("type: time_window, config: {timezone: Mars/Olympus}", "Policy 'r': there is no time zone 'Mars/Olympus'."),
        ("type: time_window, config: {deny_end_hour: 25}", "Policy 'r': hours go from 0 to 24."),
        ("type: allow_list, config: {}", "Policy 'r': "),
        (
            "type: mcp_restriction, config: {toolPattern: a, tool_pattern: b}",
            "Policy 'r': tool_pattern is given in both",
        ),
        ("type: permission_override, config: {permission: a, action: allow}", "Policy 'r': a permission_override can"),
        ("type: permission_override, config: {permission: a, expires_at: '2027-01-01T00:00:00'}", "Policy 'r': "),
    ],
)
def test_a_rule_with_an_invalid_config_is_a_finding_at_its_line(rule: str, sentence: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"policies:\n  - {{name: r, {rule}}}\n")
    (found,) = folder.findings()
    assert (found.code, found.line) == ("CFG063", 2)
    assert found.message.startswith(sentence)


def test_two_rules_with_one_name_are_a_finding(folder: Folder) -> None:
    folder.write("waypost.yaml", RULE + "  - {name: quiet, type: chain_restriction, config: {caller_pattern: a}}\n")
    (found,) = folder.findings()
    assert (found.code, found.key) == ("CFG063", "policies[1].name")
    assert found.message == "two policies are called `quiet`; give one of them another name"


def test_a_changed_rule_applies_to_the_next_call_and_an_invalid_one_changes_nothing(folder: Folder) -> None:
    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            assert (await client.call_tool("speak")).text == "one"
            folder.write("waypost.yaml", CONFIG + RULE)
            assert await hub.reload()
            with pytest.raises(RemoteError, match="tool 'speak' blocked by pattern 'speak'") as denied:
                await client.call_tool("speak")
            assert denied.value.code == -32000
            folder.write("waypost.yaml", CONFIG + RULE.replace("speak", "other") + "  - {name: b, type: allow_list}\n")
            assert not await hub.reload()
            with pytest.raises(RemoteError, match="MCP restriction"):
                await client.call_tool("speak")
            folder.write("waypost.yaml", CONFIG + "policies: []\n")
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "one"

    asyncio.run(scenario())


def test_unchanged_rules_keep_their_counts(folder: Folder) -> None:
    limit = CONFIG + "policies:\n  - {name: once, type: rate_limit, config: {max_calls: 1, window_seconds: 3600}}\n"
    folder.write("waypost.yaml", limit)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            await client.call_tool("speak")
            folder.write("waypost.yaml", limit + RULE.replace("policies:\n", "").replace("speak", "other"))
            assert await hub.reload()
            with pytest.raises(RemoteError, match="rate limit exceeded: max 1/3600s"):
                await client.call_tool("speak")

    asyncio.run(scenario())


@pytest.mark.parametrize(("before", "after"), [(SPOKEN, HUSHED), (HUSHED, SPOKEN)], ids=["goes", "comes"])
@pytest.mark.parametrize("version", ERAS)
def test_a_reload_that_removes_and_hides_a_tool_causes_one_notification(
    before: tuple[str, str], after: tuple[str, str], version: str, folder: Folder
) -> None:
    def write(kit: str, policies: str) -> None:
        folder.write("tools.py", kit)
        folder.write("waypost.yaml", CONFIG + policies)

    async def scenario() -> None:
        write(*before)
        hub = folder.hub()
        async with using(hub, version) as client, listening(client):
            write(*after)
            assert await hub.reload()
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())
