"""The settings of a configuration file reach the components, also those built before."""

from __future__ import annotations

from pathlib import Path

import pytest

from waypost import Hub

FLOW = "workflows: {flow: {initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}}\n"


@pytest.mark.parametrize("surface", ["full", "gateway", "both"])
def test_every_surface_has_the_workflows_of_the_file(tmp_path: Path, surface: str) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(f'version: "1"\nserver: {{name: desk, surface: {surface}}}\n{FLOW}')

    hub = Hub.from_config(file)

    assert "flow" in hub.workflows.by_name
    assert hub.workflows.engine.library.get("flow") is not None
