"""Each feature's release on a real API server: install, upgrade, roll back, remove, apply.

What can't be tried without a kubelet and controllers: that images start, that probes answer, that
volumes are bound, that a rolling update waits for pods, and what the migration does. Hooks' Jobs
are ended by the test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helm.features import BROKER_CHART, chart_of, render
from tests.kubernetes.hooks import HookEnds
from tests.kubernetes.objects import names, objects, workloads
from tests.testbed.helm import CHART, RELEASE, Helm, HelmError, Manifest, parse
from tests.testbed.kubernetes import ApiServer

#: The changes of an upgrade: images, labels of everything, and new objects.
_CHANGES = (
    "image.tag=next",
    "rollup.image.tag=next",
    "commonLabels.changed=yes",
    "dashboards.configMaps.enabled=true",
    "networkPolicy.enabled=true",
)
#: With a hook that checks the receiver's configuration, and one that migrates the roll-up's tables.
_TWO_HOOKS = ("--values", CHART / "ci" / "gateway.yaml", "--values", CHART / "ci" / "rollup.yaml")


def _differences(server: ApiServer, namespace: str, manifests: str) -> str:
    """Return the changes that applying manifests would make."""
    options = ("--namespace", namespace, "--server-side", "--force-conflicts", "--field-manager=helm")
    return server.kubectl("diff", *options, "--filename=-", stdin=manifests, may_differ=True)


def test_a_release_from_its_installation_to_its_end(
    server: ApiServer, helm: Helm, namespace: str, feature: Path, tmp_path: Path
) -> None:
    chart, values = chart_of(feature, tmp_path)
    prefix = f"{CHART.name}." if feature == BROKER_CHART else ""
    changes = [f"--set={prefix}{change}" for change in _CHANGES]
    release = (RELEASE, chart, "--namespace", namespace, "--values", values)
    with HookEnds(server, namespace) as ends:
        said = helm.run("install", *release)
        assert feature == BROKER_CHART or "NOTES:" in said
        first = helm.run("get", "manifest", RELEASE, "--namespace", namespace)
        installed = objects(server, namespace)
        assert installed == names(parse(first))
        assert _differences(server, namespace, first) == ""

        helm.run("upgrade", *release, *changes)
        second = helm.run("get", "manifest", RELEASE, "--namespace", namespace)
        assert second != first
        assert objects(server, namespace) == names(parse(second))
        assert _differences(server, namespace, second) == ""

        helm.run("rollback", RELEASE, "1", "--namespace", namespace)
        assert helm.run("get", "manifest", RELEASE, "--namespace", namespace) == first
        assert objects(server, namespace) == installed
        assert _differences(server, namespace, first) == ""

        helm.run("uninstall", RELEASE, "--namespace", namespace)
        kept = [
            item
            for item in parse(first)
            if item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        ]
        assert objects(server, namespace) == names(kept)
    hooks = sorted(
        (
            manifest
            for manifest in render(helm, feature, tmp_path).manifests
            if _is_hook(manifest) and manifest["kind"] == "Job"
        ),
        key=lambda hook: int(hook["metadata"]["annotations"]["helm.sh/hook-weight"]),
    )
    # Each for the installation, and for the upgrade.
    assert [hook.name for hook in ends.hooks] == [hook["metadata"]["name"] for hook in hooks] * 2


def test_an_upgrade_keeps_the_pods_of_an_autoscaler(server: ApiServer, helm: Helm, namespace: str) -> None:
    gateways = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{RELEASE}-{CHART.name}-gateway"
    release = (RELEASE, CHART, "--namespace", namespace)
    fixed = ("--values", CHART / "ci" / "gateway.yaml", "--set=gateway.replicas=4")
    scaled = ("--values", CHART / "ci" / "gateway-autoscaling.yaml")

    def pods() -> int:
        return int(server.get(gateways)["spec"]["replicas"])

    def scale(replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        headers = {"content-type": "application/merge-patch+json"}
        server.http.patch(f"{gateways}/scale", json=change, headers=headers).raise_for_status()

    with HookEnds(server, namespace):
        helm.run("install", *release, *fixed)
        assert pods() == 4
        # From a fixed number to the autoscaler's.
        helm.run("upgrade", *release, *scaled)
        assert pods() == 4
        scale(5)
        helm.run("upgrade", *release, *scaled, "--set=gateway.podAnnotations.changed=yes")
        assert pods() == 5
        # To an autoscaler that is not the chart's.
        helm.run(
            "upgrade", *release, *scaled, "--set=gateway.autoscaling.enabled=false,gateway.replicas=null"
        )
        assert pods() == 5
        assert "HorizontalPodAutoscaler" not in {
            name.partition("/")[0] for name in objects(server, namespace)
        }
        helm.run("upgrade", *release, *fixed)
        assert pods() == 4
        helm.run("uninstall", RELEASE, "--namespace", namespace)
        helm.run("install", *release, *scaled)
        assert pods() == 3
        helm.run("upgrade", *release, *scaled, "--set=gateway.podAnnotations.changed=yes")
        # A manifest without the field would leave one pod.
        helm.run("rollback", RELEASE, "1", "--namespace", namespace)
        assert pods() == 3


def _is_hook(one: Manifest) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def test_hooks_run_before_anything_is_installed_or_changed(
    server: ApiServer, helm: Helm, namespace: str
) -> None:
    release = (RELEASE, CHART, "--namespace", namespace, *_TWO_HOOKS)
    with HookEnds(server, namespace) as ends:
        helm.run("install", *release)
        installed = workloads(server, namespace)
        helm.run("upgrade", *release, "--set=rollup.image.tag=next")
    assert installed
    # The check and the migration. Helm removes both Jobs when both have ended.
    check = {"Job/telemetry-kafka-client-telemetry-config-check"}
    assert [hook.workloads for hook in ends.hooks] == [set(), check, installed, installed | check]


@pytest.mark.parametrize("hook", ["config-check", "rollup-migrate"])
def test_a_failed_hook_changes_nothing(server: ApiServer, helm: Helm, namespace: str, hook: str) -> None:
    release = (RELEASE, CHART, "--namespace", namespace, *_TWO_HOOKS)
    with HookEnds(server, namespace, fails=hook), pytest.raises(HelmError, match="pre-install"):
        helm.run("install", *release)
    assert workloads(server, namespace) == {f"Job/telemetry-kafka-client-telemetry-{hook}"}

    with HookEnds(server, namespace):
        helm.run("upgrade", "--install", *release)
    installed = helm.run("get", "manifest", RELEASE, "--namespace", namespace)
    with HookEnds(server, namespace, fails=hook), pytest.raises(HelmError, match="pre-upgrade"):
        helm.run("upgrade", *release, "--set=rollup.image.tag=next")
    assert _differences(server, namespace, installed) == ""


def test_two_releases_live_in_one_namespace(server: ApiServer, helm: Helm, namespace: str) -> None:
    release = (CHART, "--namespace", namespace, "--values", CHART / "ci" / "gateway.yaml")
    with HookEnds(server, namespace):
        for name in ("one", "two"):
            helm.run("install", name, *release)
    both = objects(server, namespace)
    helm.run("uninstall", "one", "--namespace", namespace)
    left = objects(server, namespace)
    assert left == {item for item in both if item.partition("/")[2].startswith("two-")}
    assert len(left) == len(both) / 2


def test_manifests_are_applied_without_conflicts_and_once(
    server: ApiServer, helm: Helm, namespace: str, feature: Path, tmp_path: Path
) -> None:
    rendered = render(helm, feature, tmp_path, "--namespace", namespace)
    apply = ("apply", "--server-side", "--namespace", namespace, "--filename=-")
    first = server.kubectl(*apply, "--output=name", stdin=rendered.text)
    assert len(first.split()) == len(rendered.manifests)
    diff = ("diff", "--server-side", "--namespace", namespace, "--filename=-")
    assert server.kubectl(*diff, stdin=rendered.text, may_differ=True) == ""
    before = _stored(server, namespace, first)
    server.kubectl(*apply, stdin=rendered.text)
    assert _stored(server, namespace, first) == before


def _stored(server: ApiServer, namespace: str, named: str) -> str:
    """Return stored objects without versions, because an unchanged claim gets a new one."""
    what = ("get", "--namespace", namespace, *named.split(), "--output=yaml")
    return re.sub(r"^ *resourceVersion: .*\n", "", server.kubectl(*what), flags=re.MULTILINE)
