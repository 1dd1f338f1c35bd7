"""The dashboards for Grafana name only metrics and labels that a hub has."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from waypost import Hub
from waypost.api.metrics import collect_metrics, format_metrics
from waypost.capabilities.principals import ANONYMOUS
from waypost.execution.breakers import CircuitChange
from waypost.stores.replicas import Replica

DASHBOARDS: Final = sorted((Path(__file__).parents[2] / "deploy" / "grafana").glob("*.json"))
ADDED: Final = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of histograms."""


def read_samples() -> dict[str, set[str]]:
    """The labels of each metric of a hub that has calls, a breaker that failed, and another replica."""
    hub = Hub("hub", version="1", breakers=True)

    @hub.tool
    async def fail() -> None:
        raise RuntimeError("no")

    async def scrape() -> str:
        await hub.start()
        try:
            counters, breakers = hub.core.pipeline.counters, hub.core.guard.breakers
            counters.count("fail", "ok", 0.1)
            assert breakers is not None
            breakers.follow("fail", CircuitChange("ada", 1.0, 3, "OSError", "no"))
            hub.runtime.replicas.others["b"] = Replica(
                id="b", address="", version="1", config_digest="c", status="ready", started_at=0.0, last_seen_at=0.0
            )
            return format_metrics(await collect_metrics(hub.runtime, counters, ANONYMOUS), counters)
        finally:
            await hub.stop()

    families = text_string_to_metric_families(asyncio.run(scrape()))
    return {one.name: set(one.labels) for family in families for one in family.samples}


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    return read_samples()


def expressions(dashboard: dict[str, Any]) -> list[str]:
    """All queries of a dashboard, also those of its variables."""
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    return [*asked, *variables]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_metric_and_label_is_one_of_a_hub(file: Path, samples: dict[str, set[str]]) -> None:
    for expression in expressions(json.loads(file.read_text())):
        names = re.findall(r"\bwaypost_\w+", expression)
        assert names
        assert set(names) <= samples.keys(), expression
        known = ADDED.union(*(samples[name] for name in names))
        matched = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)
        grouped = re.findall(r"\b(?:by|on|group_left) ?\(([^)]*)\)", expression)
        assert {*matched, *(label.strip() for group in grouped for label in group.split(",") if label)} <= known


def test_the_dashboards_show_all_metrics_of_a_hub(samples: dict[str, set[str]]) -> None:
    shown = {
        name
        for file in DASHBOARDS
        for expression in expressions(json.loads(file.read_text()))
        for name in re.findall(r"\bwaypost_\w+", expression)
    }
    assert shown == samples.keys()


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_have_ids_of_their_own_and_do_not_overlap(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)


def test_every_dashboard_has_an_id_and_a_title_of_its_own() -> None:
    read = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len({one["uid"] for one in read}) == len({one["title"] for one in read}) == len(DASHBOARDS) == 2
