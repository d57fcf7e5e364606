"""Marks the tests that only ``make test-all`` runs.

``make test`` runs every test without the marker ``full``. A test gets the marker in one of two
ways: by its path in :data:`FULL`, or by ``@pytest.mark.full`` on a test that stands among cheaper
ones. Running a test by its path needs no option, because pytest itself deselects nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

TREE = Path(__file__).parents[1]

#: Files and folders, and why the gate can do without them. A folder stands for everything below it.
FULL: Mapping[str, str] = MappingProxyType(
    {
        "tests/attacks": "load for minutes; the bounds are tested without load in tests/unit/gateway",
        "tests/console": "needs Node.js and Chromium; tests/unit/api/test_console.py has it over HTTP",
        "tests/examples": "loads every example; needs the compose specification's loader",
        "tests/helm": "needs Helm, built in minutes; tests/unit/deploy tests the chart's values and schema",
        "tests/integration/bridge/test_receiver.py": "kills the receiver; test_broker.py has a push",
        "tests/integration/deploy/test_alert_texts.py": "needs Prometheus, built in minutes",
        "tests/integration/deploy/test_dashboard_types.py": "needs Node.js and Grafana's types",
        "tests/integration/deploy/test_on_prometheus.py": "needs Prometheus, built in minutes",
        "tests/integration/deploy/test_receiver_alerts.py": "needs Prometheus, built in minutes",
        "tests/integration/deploy/test_receiver_metrics.py": "needs Prometheus, built in minutes",
        "tests/integration/deploy/test_rollup_alerts.py": "needs Prometheus, built in minutes",
        "tests/integration/gateway/test_takeover.py": "two versions under load, unlike tests/unit/supervisor",
        "tests/integration/kip1313": "no client has it yet; tests/unit/session has its exchange",
        "tests/integration/rollup/test_clicks.py": "rolls up hours; test_shown_numbers.py has five clients",
        "tests/integration/rollup/test_dashboards.py": "fills a database with a generated fleet",
        "tests/integration/rollup/test_ledger.py": "kills a fleet; test_store_properties.py repeats batches",
        "tests/integration/rollup/test_metrics.py": "a job of its own; tests/unit/spark_streaming has it",
        "tests/integration/security": "the matrix of protocols, mechanisms and clients, and forgeries",
        "tests/integration/test_asked_for_less.py": "waits for push intervals, unlike tests/unit/telemetry",
        "tests/integration/test_delivery.py": "kills under load; see gateway/test_delivery_mistakes.py",
        "tests/integration/test_header_versions.py": "compiles Java; tests/property/wire has the versions",
        "tests/integration/test_least_privilege.py": "needs a system user of its own",
        "tests/integration/test_meaning.py": "each client in each case; tests/unit/telemetry has each answer",
        "tests/integration/test_principal_rules.py": "compiles Java; tests/unit/principal has its answers",
        "tests/integration/test_prometheus.py": "needs Prometheus, built in minutes",
        "tests/integration/test_rest_security.py": "the matrix over REST; tests/unit/api has it in process",
        "tests/integration/test_restarts.py": "restarts a broker of its own",
        "tests/integration/test_spool_files.py": "kills at random; test_delivery.py kills twice",
        "tests/integration/test_testbed.py": "tests the testbed, which the other tests use",
        "tests/integration/test_testkit.py": "a client with TLS and a login; tests/unit/testkit has checks",
        "tests/integration/test_unauthenticated_telemetry.py": "a broker of its own; see tests/unit/session",
        "tests/release": "builds four distributions and installs them",
        "tests/unit/plugins/spool_files/test_memory.py": "writes a journal larger than its memory",
    }
)


@functools.cache
def is_full(path: Path) -> bool:
    """Tell whether the tests of a file are for ``make test-all`` only."""
    return any(path.is_relative_to(TREE / listed) for listed in FULL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of listed files before pytest evaluates ``-m``."""
    for item in items:
        if is_full(item.path):
            item.add_marker(pytest.mark.full)
