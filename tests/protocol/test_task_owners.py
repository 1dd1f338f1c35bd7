"""Tasks of authenticated and of anonymous clients."""

from tests.protocol.busy import busy_hub
from tests.protocol.conftest import Json, asynchronous, initialization, request
from tests.transports.http.conftest import Headers, Visitor, Web, browsing
from waypost.identity import Authentication, Key, digest
from waypost.wire.versions import V2025_11_25

KEYS = {name: f"wp_{name[0] * 43}" for name in ("ann", "bob")}


async def arrived(web: Web, headers: Headers | None = None) -> tuple[Visitor, Json]:
    """A client with a session, and the declared capabilities of tasks."""
    call = await web.post(initialization(V2025_11_25), headers)
    visitor = Visitor(web, call.headers["mcp-session-id"], V2025_11_25)
    visitor.headers |= {name: value for name, value in (headers or {}).items() if value is not None}
    return visitor, call.json["result"]["capabilities"]["tasks"]


async def begun(visitor: Visitor) -> str:
    """The id of a task that has ended."""
    created = await visitor.ask("tools/call", {"name": "job", "task": {}})
    task_id: str = created["result"]["task"]["taskId"]
    await visitor.ask("tasks/result", {"taskId": task_id})
    return task_id


@asynchronous
async def test_anonymous_clients_cannot_list_tasks() -> None:
    async with browsing(busy_hub()[0]) as web:
        (ann, declared), (bob, _) = await arrived(web), await arrived(web)
        assert "list" not in declared
        task_id = await begun(ann)
        for visitor in (ann, bob):
            refused = (await visitor.post(request(5, "tasks/list"))).json
            assert refused["error"]["code"] == -32601
            assert task_id not in str(refused)
        assert (await ann.ask("tasks/get", {"taskId": task_id}))["result"]["status"] == "completed"


@asynchronous
async def test_a_client_with_a_key_lists_the_tasks_of_its_principal() -> None:
    auth = Authentication([Key(name, digest(key)) for name, key in KEYS.items()], anonymous=False)
    async with browsing(busy_hub(auth=auth)[0]) as web:
        ann, declared = await arrived(web, {"authorization": f"Bearer {KEYS['ann']}"})
        bob, _ = await arrived(web, {"authorization": f"Bearer {KEYS['bob']}"})
        assert declared["list"] == {}
        task_id = await begun(ann)
        assert [task["taskId"] for task in (await ann.ask("tasks/list"))["result"]["tasks"]] == [task_id]
        assert (await bob.ask("tasks/list"))["result"]["tasks"] == []
