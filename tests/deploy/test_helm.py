"""The Helm chart: Helm renders it, the schemas of Kubernetes accept it, and the hub accepts the configuration in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from waypost.runtime.runtime import STOP_TIMEOUT_S
from waypost.settings import Server
from waypost.stores import store
from waypost.transports.http import server
from waypost.version import __version__

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "waypost"
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text())
SCRIPTS: Final = Path(sysconfig.get_path("scripts"))
EVERYTHING: Final = (
    "autoscaling.enabled=true",
    "autoscaling.podMetrics[0].name=waypost_sessions_open",
    "autoscaling.podMetrics[0].averageValue=5000",
    "serviceMonitor.enabled=true",
    "serviceMonitor.labels.release=prometheus",
    "ingress.enabled=true",
    "ingress.className=nginx",
    "ingress.tlsSecret=hub-tls",
    "extraEnv[0].name=A",
    "extraEnv[0].value=b",
    "podLabels.team=tools",
    "podAnnotations.note=x",
)
VERSIONS: Final = ("1.25", "1.37")
DEADLINE_S: Final = 50


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPTS / "helm", *arguments], capture_output=True, text=True, timeout=DEADLINE_S)


def render(*settings: str) -> str:
    """The manifests that Helm renders from the chart."""
    options = [word for setting in settings for word in ("--set", setting)]
    done = run_helm("template", "hub", CHART, "--namespace", "tools", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(manifests: str) -> dict[str, dict[str, Any]]:
    """Manifests by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(manifests) if one}


@pytest.fixture(scope="module")
def everything() -> str:
    return render(*EVERYTHING)


@pytest.fixture(scope="module")
def container() -> dict[str, Any]:
    [found] = read(render())["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_helm_lint_finds_nothing() -> None:
    done = run_helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_the_defaults_render_the_manifests_of_three_replicas() -> None:
    found = read(render())
    assert set(found) == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert found["Deployment"]["spec"]["replicas"] == 3
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert found["Service"]["spec"]["sessionAffinity"] == "None"


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(everything: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(everything)
    validate = [str(SCRIPTS / "kubernetes-validate"), "--strict", "-k", version, str(tmp_path / "all.yaml")]
    done = subprocess.run(validate, capture_output=True, text=True, timeout=DEADLINE_S)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count(" passed for resource ") == 7
    # Its schema is not part of Kubernetes.
    assert [line for line in said.splitlines() if not line.startswith("INFO")] == [
        line for line in said.splitlines() if "kind ServiceMonitor" in line
    ]


def test_selectors_match_the_pods_of_the_deployment(everything: str) -> None:
    found = read(everything)
    pod = found["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    assert found["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert found["Service"]["spec"]["selector"].items() <= labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    service = found["Service"]["metadata"]["labels"]
    assert found["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= service.items()
    [port] = found["Service"]["spec"]["ports"]
    [endpoint] = found["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    assert port["targetPort"] in [one["name"] for one in pod["spec"]["containers"][0]["ports"]]


def test_autoscaling_decides_how_many_there_are_by_cpu_and_metrics(everything: str) -> None:
    found = read(everything)
    assert "replicas" not in found["Deployment"]["spec"]
    scaler = found["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert [one["type"] for one in scaler["metrics"]] == ["Resource", "Pods"]
    assert scaler["metrics"][1]["pods"]["metric"]["name"] == "waypost_sessions_open"


def test_a_pod_may_do_nothing_that_a_hub_does_not_need(container: dict[str, Any]) -> None:
    pod = read(render())["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "--uid 10001 " in (CHART.parents[2] / "Dockerfile").read_text()
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")} == {"/data", "/tmp"}
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_a_probe_waits_for_a_store_that_hangs_and_names_a_host_that_is_accepted(
    container: dict[str, Any], probe: str
) -> None:
    found = container[probe]
    assert found["httpGet"] == {
        "path": "/health",
        "port": "http",
        "httpHeaders": [{"name": "Host", "value": "localhost"}],
    }
    assert found["timeoutSeconds"] > store._HEALTH_TIMEOUT_S


def test_a_pod_is_not_killed_before_the_hub_has_stopped(container: dict[str, Any]) -> None:
    longest = Server().drain_ms / 1000 + server._GRACE_S + server._CANCEL_S + STOP_TIMEOUT_S
    pod = read(render())["Deployment"]["spec"]["template"]["spec"]
    [_, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + longest


def test_the_hub_accepts_the_configuration_of_the_config_map(container: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(read(render())["ConfigMap"]["data"]["waypost.yaml"])
    env = {**os.environ, "DATABASE_URL": "postgresql://waypost@db/waypost"}
    check = [sys.executable, "-m", "waypost", "check", container["args"][1]]
    done = subprocess.run(check, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout.strip()) == (0, "waypost.yaml: nothing wrong"), done.stdout + done.stderr


def test_a_changed_configuration_restarts_the_pods() -> None:
    first, second = (
        read(render(f"config.server.name={name}"))["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        for name in ("one", "two")
    )
    assert first["checksum/config"] != second["checksum/config"]


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("replicaCount=0", "replicaCount"),
        ("replicas=3", "replicas"),
        ("config.store.url=sqlite:///data/hub.db", "config.store.url"),
        ("existingSecret=", "existingSecret"),
        ("terminationGracePeriodSeconds=30", "terminationGracePeriodSeconds"),
        ("serviceMonitor.interval=often", "serviceMonitor.interval"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(setting: str, place: str) -> None:
    done = run_helm("template", "hub", CHART, "--set", setting)
    assert done.returncode != 0
    assert place.split(".")[-1] in done.stderr


def test_the_schema_has_all_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"].keys() - {"global"} == VALUES.keys()
