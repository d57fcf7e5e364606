"""Names of Jobs depend on their pods, because a Job cannot be changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.testbed.helm import Helm, of_kind, parse

_JOB: Final[Mapping[str, Any]] = {
    "sidecar": {"enabled": False},
    "rollup": {
        "enabled": True,
        "kind": "Job",
        "config": {"kafka": {"bootstrap_servers": "kafka:9092", "topic": "telemetry"}},
        "postgres": {"secretName": "telemetry-postgres"},
        "migrate": {"enabled": False},
    },
}


def _job(helm: Helm, *arguments: str) -> str:
    (job,) = of_kind(parse(helm.template(_JOB, *arguments)), "Job")
    name: str = job["metadata"]["name"]
    return name


def test_a_job_whose_pod_is_the_same_keeps_its_name(helm: Helm) -> None:
    assert _job(helm) == _job(helm, "--is-upgrade", "--set", "rollup.backoffLimit=1")


@pytest.mark.parametrize(
    "change", ["rollup.image.tag=v9", "rollup.config.trigger_seconds=5", "rollup.podAnnotations.run=again"]
)
def test_a_job_whose_pod_is_another_has_another_name(helm: Helm, change: str) -> None:
    assert _job(helm) != _job(helm, "--set", change)
