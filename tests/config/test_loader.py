from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import check, load
from waypost.errors import ConfigError
from waypost.settings import (
    Audit,
    Bus,
    Policy,
    PromptArgument,
    PromptTemplate,
    Server,
    SkillLimits,
    Skills,
    Store,
    ToolkitUse,
)

EVERYTHING = """\
version: "1"
server: {name: demo, version: 1.2.3, instructions: Use me., host: 0.0.0.0, port: 0, surface: both, names: portable,
  toolTimeoutMs: 1, taskAfterMs: 0, pageSize: 2, sessionIdleMs: 3, maxBodyBytes: 1024, maxSessions: 4, maxTasks: 6,
  allowedHosts: [a], allowedOrigins: ["https://a"], allowAnonymousRemote: true, maxRunning: 5}
store: {url: "postgresql://db/waypost"}
bus: {url: "local://"}
toolkits: [os, {use: "os:path", category: Admin, hidden: true, visible: false, name: n, description: d}]
prompts: {p: {title: T, description: D, arguments: [{name: to, description: whom, required: true}],
  template: "{{ to }}"}}
skills: {core: [shell], dynamic: made, autoload: false, watch: true, timeoutMs: 9, permissions: [email],
  limits: {processes: 1, waiting: 2, idleMs: 3, startMs: 400, cpuSeconds: 5, memoryBytes: 33554432, files: 17,
    fileBytes: 8, resultBytes: 1024, outputBytes: 10},
  allowPrivate: true, searxng: "http://127.0.0.1:8888", shell: [[git, log]]}
policies: [{name: r, type: rate_limit, config: {max_calls: 1}, description: Why., priority: -1, enabled: false,
  principals: [ci], roles: [agent], callers: [mcp], capabilities: ["a.*"], hide: true}]
audit: {sink: stderr}
mcp: {tool_timeout_ms: 1}
"""


def test_every_setting_reaches_the_configuration(folder: Folder) -> None:
    config = folder.load(EVERYTHING).config
    assert config.server == Server(
        name="demo",
        version="1.2.3",
        instructions="Use me.",
        host="0.0.0.0",
        port=0,
        surface="both",
        names="portable",
        tool_timeout_ms=1,
        task_after_ms=0,
        page_size=2,
        session_idle_ms=3,
        max_body_bytes=1024,
        max_sessions=4,
        max_tasks=6,
        allowed_hosts=["a"],
        allowed_origins=["https://a"],
        allow_anonymous_remote=True,
        max_running=5,
    )
    assert config.store == Store(url="postgresql://db/waypost")
    assert config.bus == Bus(url="local://")
    assert config.toolkits == [
        "os",
        ToolkitUse(use="os:path", category="Admin", hidden=True, visible=False, name="n", description="d"),
    ]
    assert config.prompts == {
        "p": PromptTemplate(
            title="T",
            description="D",
            arguments=[PromptArgument(name="to", description="whom", required=True)],
            template="{{ to }}",
        )
    }
    assert config.skills == Skills(
        core=["shell"],
        dynamic=str(folder.path / "made"),
        autoload=False,
        watch=True,
        timeout_ms=9,
        limits=SkillLimits(
            processes=1,
            waiting=2,
            idle_ms=3,
            start_ms=400,
            cpu_seconds=5,
            memory_bytes=33_554_432,
            files=17,
            file_bytes=8,
            result_bytes=1024,
            output_bytes=10,
        ),
        permissions=["email"],
        allow_private=True,
        searxng="http://127.0.0.1:8888",
        shell=[["git", "log"]],
    )
    assert config.policies == [
        Policy(
            name="r",
            type="rate_limit",
            config={"max_calls": 1},
            description="Why.",
            priority=-1,
            enabled=False,
            principals=["ci"],
            roles=["agent"],
            callers=["mcp"],
            capabilities=["a.*"],
            hide=True,
        )
    ]
    assert config.audit == Audit(sink="stderr")
    assert config.tool_timeout == 0.001


def test_a_configuration_lists_its_files(folder: Folder) -> None:
    more = folder.write("more.yaml", "")
    loaded = folder.load("include: [more.yaml]\n")
    assert loaded.path == folder.path / "waypost.yaml"
    assert loaded.files == (loaded.path, more)
    assert loaded.config.include == [str(more)]


def test_errors_are_raised_together_with_the_first_as_the_message(folder: Folder) -> None:
    with pytest.raises(ConfigError) as caught:
        folder.load("server: {port: x}\nprompts: {p: {template: '{{ b }}'}}\nz: 1\n")
    assert caught.value.message.startswith(f"{folder.path / 'waypost.yaml'}:1: server.port: expected an integer")
    assert caught.value.message.endswith("(and 1 more)")
    assert [found.code for found in caught.value.findings] == ["CFG012", "CFG051", "CFG010"]


def test_a_single_error_is_the_message(folder: Folder) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder.path / "missing.yaml", {})
    assert str(caught.value) == f"{folder.path / 'missing.yaml'}:1: the file does not exist; check the path [CFG001]"


def test_a_missing_default_file_suggests_init(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    (found,) = check(Path("waypost.yaml"), {})
    assert found.code == "CFG001"
    assert found.message == f"there is no such file in {folder.path}; run `waypost init`, or name another"


@pytest.mark.parametrize("name", ["nul\0l", "x" * 5000])
def test_an_impossible_path_is_an_ordinary_error(folder: Folder, name: str) -> None:
    with pytest.raises(ConfigError):
        load(folder.path / name, {})


def test_findings_can_be_encoded_as_json(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "z: 1\n")
    (row,) = (found.to_row() for found in check(path, {}))
    assert row == {
        "file": str(path),
        "line": 1,
        "key": "z",
        "message": row["message"],
        "code": "CFG010",
        "severity": "error",
    }


def test_a_valid_file_has_no_findings(folder: Folder) -> None:
    (folder.path / "made").mkdir()
    assert folder.check(EVERYTHING) == []
