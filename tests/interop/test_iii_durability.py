"""Published documents survive the hub, and a registry worker stores them in the state of the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.shell import waypost
from tests.interop.iii_desk import publishing, registry, standing_alone
from tests.interop.iii_peers import LANGUAGES, Language
from tests.ports import free_port

pytestmark = pytest.mark.timeout(120)

PROMPT = {"name": "greet", "description": "Greet.", "function_id": "mine::greet", "arguments": [{"name": "who"}]}


@pytest.mark.parametrize("language", LANGUAGES)
def test_published_documents_survive_a_killed_hub(language: Language, tmp_path: Path) -> None:
    with registry(tmp_path) as first, publishing(language, first.workers, tmp_path) as worker:
        worker.call("skills::register", id="brain/deep", skill="# Brain")
        worker.call("prompts::register", **PROMPT)
        kept = worker.call("skills::list")["skills"], worker.call("prompts::list")["prompts"]
        first.serving.process.kill()
    with registry(tmp_path) as second, publishing(language, second.workers, tmp_path) as worker:
        assert (worker.call("skills::list")["skills"], worker.call("prompts::list")["prompts"]) == kept
        assert worker.call("skill::fetch", uri="iii://brain/deep") == "# iii://brain/deep\n\n# Brain"


def test_workers_refill_a_wiped_store_by_registering_again(tmp_path: Path) -> None:
    port = free_port()
    with registry(tmp_path, port=port) as first, publishing("python", first.workers, tmp_path) as worker:
        worker.call("skills::register", id="brain", skill="# Brain")
        first.serving.process.kill()
        first.serving.wait()
        shutil.rmtree(tmp_path / ".waypost")
        with registry(tmp_path, port=port):
            assert worker.call("skills::list") == {"skills": []}
            worker.call("skills::register", id="brain", skill="# Brain")
            worker.call("prompts::register", **PROMPT)
            assert [one["id"] for one in worker.call("skills::list")["skills"]] == ["brain"]
            assert [one["name"] for one in worker.call("prompts::list")["prompts"]] == ["greet"]


def test_sections_and_prompts_have_the_configured_timeout(tmp_path: Path) -> None:
    with registry(tmp_path, timeout=300) as hub, publishing("python", hub.workers, tmp_path) as worker:
        worker.offer("mine::greet", "hang")
        worker.call("prompts::register", **PROMPT)
        late = "trigger mine::greet: it did not answer within 0.3 s"
        assert late in worker.refusal("skills::resources-read", uri="iii://fn/mine/greet")
        assert late in worker.refusal("skill::fetch", uri="iii://fn/mine/greet")
        assert late in worker.refusal("prompts::mcp-get", name="greet")


def test_a_registry_worker_stores_documents_in_the_configured_scopes(tmp_path: Path) -> None:
    config = "scopes: {skills: texts, prompts: commands}\nstate_timeout_ms: 400\n"
    with (
        registry(tmp_path, kept=False) as hub,
        standing_alone(tmp_path, hub.workers, config),
        publishing("node", hub.workers, tmp_path) as worker,
    ):
        worker.call("skills::register", id="brain", skill="# Brain")
        worker.call("prompts::register", **PROMPT)
        assert worker.call("state::get", scope="texts", key="brain")["skill"] == "# Brain"
        assert worker.call("state::get", scope="commands", key="greet")["function_id"] == "mine::greet"
        worker.offer("mine::greet", "hang")
        assert "within 0.4 s" in worker.refusal("prompts::mcp-get", name="greet")


@pytest.mark.parametrize(
    ("config", "logged"),
    [
        ("scopes: [", "defaults hold"),
        ("- 1", "defaults hold"),
        ("scopes: 5\nstate_timeout_ms: never\n", "state_timeout_ms is not valid"),
    ],
)
def test_an_invalid_configuration_is_replaced_by_the_defaults(config: str, logged: str, tmp_path: Path) -> None:
    with (
        registry(tmp_path, kept=False) as hub,
        standing_alone(tmp_path, hub.workers, config) as alone,
        publishing("python", hub.workers, tmp_path) as worker,
    ):
        assert alone.wait_for(logged)
        worker.call("skills::register", id="brain", skill="# Brain")
        assert worker.call("state::get", scope="skills", key="brain")["id"] == "brain"


def test_the_manifest_describes_the_worker(tmp_path: Path) -> None:
    printed = waypost("skills-worker", "--manifest", cwd=tmp_path)
    assert printed.returncode == 0
    manifest = json.loads(printed.stdout)
    assert manifest.keys() == {"name", "version", "description", "default_config", "supported_targets"}
    assert manifest["name"] == "skills"
    assert manifest["default_config"] == {
        "scopes": {"skills": "skills", "prompts": "prompts"},
        "state_timeout_ms": 10_000,
    }
