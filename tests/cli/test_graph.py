"""`waypost graph`"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from waypost.cli import main

Captured = pytest.CaptureFixture[str]

CONFIG = """\
workflows:
  deploy:
    initialState: ready
    states:
      ready: {transitions: {go: {target: done, actor: human}}}
      done: {terminal: true}
  digest: {steps: [{skill: rss_collector}]}
"""


def graph(*arguments: str) -> int:
    return main(["graph", *arguments])


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "waypost.yaml").write_text(CONFIG)
    return str(tmp_path / "waypost.yaml")


def test_a_workflow_is_drawn_for_mermaid(config: str, capsys: Captured) -> None:
    assert graph(config, "deploy") == 0

    said = capsys.readouterr()
    assert said.out.startswith("stateDiagram-v2\n")
    assert "ready --> done : go (human)" in said.out
    assert said.err == ""


def test_a_workflow_is_drawn_for_graphviz_under_its_name(config: str, capsys: Captured) -> None:
    assert graph(config, "digest", "--format", "dot") == 0
    assert capsys.readouterr().out.startswith('digraph "digest" {')


def test_a_workflow_is_drawn_as_svg(config: str, capsys: Captured) -> None:
    assert graph(config, "deploy", "--format", "svg") == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")


def test_an_unknown_workflow_is_refused_with_the_nearest(config: str, capsys: Captured) -> None:
    assert graph(config, "deplyo") == 1
    assert capsys.readouterr().err.endswith("; did you mean `deploy`?\n")


def test_a_configuration_with_errors_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert graph(str(tmp_path / "gone.yaml"), "deploy") == 1
    assert capsys.readouterr().err.endswith("[CFG001]\n")


def test_an_unknown_format_is_wrong_usage(config: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        graph(config, "deploy", "--format", "png")
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
