"""`waypost runs resolve`: operators resolve the unknown outcome of a transition whose hub was killed."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.released import Desk
from tests.cli.shell import PATIENCE, serving, waypost
from waypost.cli import main

CONFIG = """\
version: "1"
server: {name: desk, port: 0, surface: full}
workflows:
  slow:
    initialState: idle
    states:
      idle:
        transitions:
          work:
            target: done
            executor: {kind: cli, command: sh, args: [-c, $.input.script]}
            output: {ok: $.output.ok}
      done: {terminal: true}
"""
SCRIPT = "if mkdir {0}/began 2>/dev/null; then echo > {0}/here; cat {0}/gate; fi; echo again"
"""Waits the first time it is run, when it has said so."""


def killed_in_the_middle(folder: Path) -> str:
    """An instance whose hub was killed during a transition."""
    (folder / "waypost.yaml").write_text(CONFIG)
    for name in ("here", "gate"):
        os.mkfifo(folder / name)
    gate = os.open(folder / "gate", os.O_RDWR)
    try:
        with serving("waypost.yaml", cwd=folder) as hub, ThreadPoolExecutor(1) as pool:
            desk = Desk(folder, hub)
            view: dict[str, Any] = desk.call(
                "workflow.start", definitionId="slow", input={"script": SCRIPT.format(folder)}
            )
            submitted = pool.submit(desk.submit, view, "work")
            assert (folder / "here").read_text() == "\n"
            hub.signal(signal.SIGKILL)
            assert hub.wait() == -signal.SIGKILL
            assert submitted.exception(PATIENCE) is not None
    finally:
        os.close(gate)
    return str(view["workflowId"])


@pytest.mark.parametrize(
    ("arguments", "state", "context"),
    [
        (["--as", "succeeded", "--output", '{"ok": true}'], "done", {"ok": True}),
        (["--as", "failed"], "idle", {}),
        (["--as", "retry"], "done", {"ok": None}),
    ],
    ids=["succeeded", "failed", "retry"],
)
def test_an_unknown_outcome_is_resolved(
    arguments: list[str], state: str, context: dict[str, Any], tmp_path: Path
) -> None:
    run = killed_in_the_middle(tmp_path)
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        assert hub.url
        shown = json.loads(waypost("runs", "show", run, "--json", cwd=tmp_path).stdout)
        assert (shown["status"], shown["error"]["code"]) == ("unknown_outcome", "UNKNOWN_OUTCOME")
        listed = waypost("runs", "list", "--status", "unknown_outcome", "--json", cwd=tmp_path)
        assert [one["workflowId"] for one in json.loads(listed.stdout)] == [run]
        done = waypost("runs", "resolve", run, *arguments, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        view = json.loads(done.stdout)
        assert (view["state"], view["context"]) == (state, context)


@pytest.mark.parametrize("how", ["retry", "failed"])
def test_an_output_is_accepted_only_for_success(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["runs", "resolve", "wf_x", "--as", how, "--output", "{}", "--url", "http://127.0.0.1:1"]

    assert main(arguments) == 2

    assert capsys.readouterr().err == f"waypost: --output goes with --as succeeded, not with --as {how}.\n"
