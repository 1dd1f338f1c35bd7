"""Skills and prompts of workers for clients of the hub: the scenarios of the bridge between the iii project and MCP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.iii_clients import VERSION, Client
from tests.interop.iii_desk import Publisher, Registry, publishing
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_peers import LANGUAGES, Language

pytestmark = pytest.mark.timeout(120)

INTERNAL = ("engine::", "state::", "stream::", "iii.", "iii::", "mcp::", "a2a::", "skills::", "prompts::")
PROMPT: dict[str, Any] = {
    "name": "greet",
    "description": "Compose a greeting.",
    "arguments": [{"name": "name", "description": "Who to greet", "required": True}, {"name": "tone"}],
    "function_id": "mine::greet",
}


@pytest.fixture(scope="module", params=LANGUAGES)
def connected(
    hub: Registry, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Publisher]:
    """A worker of either SDK."""
    with publishing(request.param, hub.workers, tmp_path_factory.mktemp("home")) as worker:
        yield worker


@pytest.fixture
def publisher(connected: Publisher) -> Iterator[Publisher]:
    """A worker with a skill, a function and a prompt."""
    connected.call("skills::register", id="brain", skill="# Brain\n\nRemembers things.\n")
    connected.call("skills::register", id="brain/deep", skill="# Deep\n")
    connected.give(mine__greet={"content": "Greet Ada."}, mine__page="# Page")
    connected.call("prompts::register", **PROMPT)
    yield connected
    connected.clear()


@pytest.fixture
def client(hub: Registry) -> Client:
    """A client of the hub."""
    return Client(hub.url)


def test_resources_list_envelope(publisher: Publisher) -> None:
    """mcp_bridge."""
    answer = publisher.call("skills::resources-list")
    assert answer.keys() == {"resources"}
    assert [one["uri"] for one in answer["resources"]] == ["iii://skills", "iii://brain", "iii://brain/deep"]


def test_resources_read_round_trip(publisher: Publisher) -> None:
    """mcp_bridge."""
    for one in publisher.call("skills::resources-list")["resources"]:
        (content,) = publisher.call("skills::resources-read", uri=one["uri"])["contents"]
        assert (content["uri"], content["mimeType"]) == (one["uri"], one["mimeType"])


def test_prompts_mcp_list_has_arguments_as_mcp_shapes_them(publisher: Publisher) -> None:
    """mcp_bridge."""
    arguments = [
        {"name": "name", "description": "Who to greet", "required": True},
        {"name": "tone", "required": False},
    ]
    outcome = {"name": "greet", "description": "Compose a greeting.", "arguments": arguments}
    assert publisher.call("prompts::mcp-list") == {"prompts": [outcome]}


def test_prompts_mcp_get_dispatches_the_handler(publisher: Publisher) -> None:
    """mcp_bridge."""
    answer = publisher.call("prompts::mcp-get", name="greet", arguments={"name": "Ada"})
    message = {"role": "user", "content": {"type": "text", "text": "Greet Ada."}}
    assert answer == {"description": "Compose a greeting.", "messages": [message]}
    assert publisher.payloads_of("mine::greet") == [{"name": "Ada"}]


def test_initialize_negotiates_2025_06_18(client: Client) -> None:
    assert client.welcome["protocolVersion"] == VERSION


def test_lists_that_may_change_are_declared_before_anything_is_published(hub: Registry, client: Client) -> None:
    assert client.welcome["capabilities"]["prompts"] == {"listChanged": True}
    assert client.welcome["capabilities"]["resources"] == {"listChanged": True, "subscribe": True}
    assert client.ask("prompts/list") == {"prompts": []}


def test_ping_empty(client: Client) -> None:
    assert client.ask("ping") == {}


def test_unknown_method_is_32601(client: Client) -> None:
    assert client.error("no/such/method")["code"] == -32601


@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/nobody/knows"])
def test_a_notification_is_accepted_without_an_answer(client: Client, method: str) -> None:
    assert client.notify(method) == (202, None)


@pytest.mark.parametrize(
    "body", [[{"jsonrpc": "2.0", "id": 1, "method": "ping"}], {"id": 1, "method": "ping"}], ids=["batch", "no jsonrpc"]
)
def test_an_invalid_request_is_32600(client: Client, body: Any) -> None:
    assert client.post(body).body["error"]["code"] == -32600


def test_tools_list_exposes_user_functions_and_hides_infra(publisher: Publisher, client: Client) -> None:
    publisher.wait_until_delivered()
    listed = {one["name"]: one for one in client.ask("tools/list")["tools"]}
    assert {"mine__greet", "mine__page", "skill__fetch"} <= listed.keys()
    hidden = tuple(prefix.replace("::", "__") for prefix in INTERNAL)
    assert [name for name in listed if name.startswith((*hidden, *INTERNAL))] == []
    assert set(listed["skill__fetch"]["inputSchema"]["properties"]) == {"uri", "uris"}


def test_tools_call_dispatches(publisher: Publisher, client: Client) -> None:
    publisher.offer("mine::echo")
    publisher.wait_until_delivered()
    answer = client.use("mine__echo", words=["ü", None])
    assert answer.get("isError", False) is False
    assert publisher.payloads_of("mine::echo") == [{"words": ["ü", None]}]
    fetched = client.use("skill__fetch", uris=["iii://brain", "iii://fn/mine/page"])
    text = "# iii://brain\n\n# Brain\n\nRemembers things.\n\n---\n\n# iii://fn/mine/page\n\n# Page"
    assert [one["text"] for one in fetched["content"]] == [text]


def test_handler_failures_are_results_and_wrong_requests_are_errors(publisher: Publisher, client: Client) -> None:
    publisher.offer("mine::broken", "fail")
    publisher.wait_until_delivered()
    failed = client.use("mine__broken")
    assert failed["isError"] is True
    assert "it went wrong" in failed["content"][0]["text"]
    wrong = client.use("skill__fetch", uri="https://elsewhere")
    assert wrong["isError"] is True
    assert "Invalid URI (must start with iii://): https://elsewhere" in wrong["content"][0]["text"]
    for params in (None, {}, {"name": ""}):
        assert client.error("tools/call", params)["code"] == -32602


@pytest.mark.parametrize("prefix", INTERNAL)
def test_hidden_namespaces_are_refused(client: Client, prefix: str) -> None:
    for name in {f"{prefix}list", f"{prefix.replace('::', '__')}list"}:
        error = client.error("tools/call", {"name": name, "arguments": {}})
        assert error["code"] == -32602
        assert "Unknown tool" in error["message"]


def test_resources_list_read_and_templates_delegate(publisher: Publisher, client: Client) -> None:
    resources = publisher.call("skills::resources-list")["resources"]
    assert client.ask("resources/list") == {"resources": sorted(resources, key=lambda one: str(one["uri"]))}
    templates = publisher.call("skills::resources-templates")["resourceTemplates"]
    listed = client.ask("resources/templates/list")["resourceTemplates"]
    assert sorted(listed, key=repr) == sorted(templates, key=repr)
    for uri in ("iii://skills", "iii://brain", "iii://brain/deep", "iii://fn/mine/page"):
        assert client.ask("resources/read", {"uri": uri}) == publisher.call("skills::resources-read", uri=uri)


def test_resources_read_without_params_or_of_nothing_is_an_error(publisher: Publisher, client: Client) -> None:
    assert client.error("resources/read")["code"] == -32602
    unknown = client.error("resources/read", {"uri": "iii://brian"})
    assert unknown["code"] == -32002
    assert 'Skill not found: brian; did you mean "brain"' in unknown["message"]
    refused = client.error("resources/read", {"uri": "iii://fn/state/get"})
    assert "internal namespace" in refused["message"]


def test_prompts_list_and_get_delegate(publisher: Publisher, client: Client) -> None:
    assert client.ask("prompts/list") == publisher.call("prompts::mcp-list")
    given = {"name": "greet", "arguments": {"name": "Ada"}}
    assert client.ask("prompts/get", given) == publisher.call("prompts::mcp-get", **given)


def test_prompts_get_without_params_or_of_nothing_is_an_error(publisher: Publisher, client: Client) -> None:
    assert client.error("prompts/get")["code"] == -32602
    unknown = client.error("prompts/get", {"name": "gret"})
    assert (unknown["code"], unknown["message"]) == (-32602, 'Unknown prompt: gret; did you mean "greet"?')
    publisher.offer("mine::broken", "fail")
    publisher.call("prompts::register", **{**PROMPT, "function_id": "mine::broken"})
    failed = client.error("prompts/get", {"name": "greet"})
    assert failed["code"] == -32000
    assert "trigger mine::broken: it went wrong" in failed["message"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_two_functions_never_share_a_tool(hub: Registry, client: Client, language: Language, tmp_path: Path) -> None:
    with publishing(language, hub.workers, tmp_path) as worker:
        worker.offer("a::b__c", "give", gives="one")
        worker.offer("a__b::c", "give", gives="two")
        worker.wait_until_delivered()
        names = [one["name"] for one in client.ask("tools/list")["tools"] if one["name"].startswith("a")]
        assert len(set(names)) == 2
        assert {client.use(name)["content"][0]["text"] for name in names} == {"one", "two"}
