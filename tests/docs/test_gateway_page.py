"""The page about the gateway is right about the gateway and about files of mcp-flowgate."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from tests.docs.pages import DOCS
from waypost.capabilities.capability import GATEWAY_TOOLS
from waypost.config import load
from waypost.config.flowgate import IDLE
from waypost.config.models import ClientServer
from waypost.gateway.directory import PAGE_SIZE
from waypost.gateway.gateway import MAX_RESULTS
from waypost.runtime.assembly import check

TEXT: Final = (DOCS / "gateway.md").read_text()
PORT: Final = (DOCS / "coming-from-mcp-flowgate.md").read_text()
TRANSLATED: Final = """\
version: "1.0.0"
audit: {sink: stdout}
discovery: {index: memory, include: [proxy, workflows, connections]}
store: {kind: sqlite, path: flowgate.db}
connections:
  tool: {kind: cli, command: make, args: [all]}
"""
LOADS: Final = """\
connections:
  tracker: {kind: mcp, command: tracker-server}
  tool: {kind: cli, command: make, workingDirectory: ., env: {MODE: test}}
  api: {kind: rest, baseUrl: "https://api.example.com", headers: {Authorization: "Bearer ${NO_TOKEN:-none}"}}
capabilities:
  issue.close:
    title: Close an issue
    inputSchema: {type: object, properties: {id: {type: string}}, required: [id], additionalProperties: false}
    executor: {kind: mcp, connection: tracker, tool: close}
  issue.close.checked: {wraps: issue.close, guards: [{kind: role, role: lead}]}
proxy:
  expose:
    - name: build
      title: Build
      executor: {kind: cli, connection: tool, args: [$.arguments.target], treatNonZeroAsFailure: false}
      inputSchema: {type: object, properties: {target: {type: string}}, required: [target]}
      reliability: {timeoutMs: 1000, retry: {maxAttempts: 2, backoff: fixed, initialDelayMs: 10, retryOn: [timeout]}}
    - {capability: issue.close.checked, as: close, aliases: [shut]}
workflows:
  ship:
    title: Ship
    version: "2026-05-22"
    inputSchema: {type: object, properties: {name: {type: string, default: it}}}
    initialState: build
    initialContext: {tries: 0, ok: false}
    timeoutMs: 600000
    onTimeout: {target: late}
    maxChainDepth: 50
    linkFilter: byGuards
    states:
      build:
        goal: A wheel
        guidance: Build it
        onEnter: {executor: {kind: noop}, output: {tries: {add: [$.context.tries, 1]}}}
        transitions:
          go:
            target: build
            actor: agent
            guards: [{kind: any_of, guards: [{kind: expr, expr: $.context.ok == false}, {kind: role, role: lead}]}]
            executor: {capability: issue.close}
            prefill: {id: $.workflow.input.name}
            output: {ok: {set: true}}
            branches: [{when: {kind: expr, expr: $.context.ok == true}, target: done}]
      done: {terminal: true}
      late: {terminal: true}
"""


def test_the_page_has_the_seven_tools_and_the_limits() -> None:
    assert set(re.findall(r"^\| `((?:gateway|workflow)\.\w+)` \|", TEXT, re.MULTILINE)) == GATEWAY_TOOLS
    assert f"pages of {PAGE_SIZE}" in TEXT
    assert f"from 1 to {MAX_RESULTS}," in " ".join(TEXT.split())


def test_keys_of_mcp_flowgate_are_translated(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(TRANSLATED)
    assert [(finding.line, finding.code) for finding in check(file)] == [(3, "CFG064")]
    config = load(file).config
    assert (config.version, config.audit.sink, config.store.url) == ("1", "stderr", "sqlite:///flowgate.db")


@pytest.mark.parametrize(("model", "key"), [(model, key) for model, keys in IDLE.items() for key in keys])
def test_the_page_names_every_key_without_effect(model: type[Struct], key: str) -> None:
    table = PORT.partition("(`CFG064`):\n\n")[2].partition("\n\n")[0]
    clients = (DOCS / "upstreams.md").read_text().partition("## Servers of a client")[2].partition("\n## ")[0]
    assert f"`{key}`" in (clients if model is ClientServer or key == "inputs" else table)


def test_the_rest_of_a_file_of_mcp_flowgate_loads(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(LOADS)
    assert [str(finding) for finding in check(file) if finding.severity == "error"] == []


@pytest.mark.parametrize("key", ["allOf", "all_of", "anyOf", "any_of"])
def test_both_spellings_of_guards_load(key: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(LOADS.replace("kind: any_of", f"kind: {key}"))
    assert [str(finding) for finding in check(file) if finding.severity == "error"] == []
