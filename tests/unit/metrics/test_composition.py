"""Metrics from the composition root: tracked peers, certificates in use."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.app import Application
from receiver.settings.load import load
from receiver.telemetry.control.limits import Scope
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import free_port
from tests.unit.api.conftest import connection

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@pytest.fixture
def application(tmp_path: Path) -> Callable[[str], Application]:
    """The receiver as one would start it, with more keys of its listener."""

    def make(listener: str, rest: str = "") -> Application:
        config = tmp_path / "receiver.yaml"
        config.write_text(
            f"""
broker: {{id: 1, cluster_id: abc}}
listeners:
  - {{name: CLIENT, bind: "127.0.0.1:{free_port()}", upstream: "localhost:{free_port()}", {listener}}}
subscriptions: {{path: {tmp_path / "subscriptions.db"}}}
rest: {{{rest}}}
"""
        )
        return Application(load(config, {}), config)

    return make


def ends(application: Application, listener: str = "CLIENT") -> dict[str, float]:
    """The gauge by side; every series has to be the listener's."""
    metric = "kafka_telemetry_tls_certificate_expiry_seconds"
    found = {}
    for family in application._metrics.registry.collect():
        for sample in family.samples:
            if sample.name == metric:
                assert sample.labels.keys() == {"listener", "side"}
                assert sample.labels["listener"] == listener
                found[sample.labels["side"]] = sample.value
    return found


def issue(authority: CertificateAuthority, folder: Path, name: str, days: float) -> str:
    """Write a certificate that ends in so many days, and return its keys in the configuration."""
    files = authority.issue(not_after=NOW + datetime.timedelta(days=days)).write(folder, name)
    return f"certificate: {files.chain}, key: {files.key}"


def in_days(days: float) -> float:
    return (NOW + datetime.timedelta(days=days)).timestamp()


def test_the_end_of_each_certificate_in_use_is_shown_and_of_the_next_one_after_a_change(
    application: Callable[[str], Application], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.watch._EVERY_S", 0.0)
    authority = CertificateAuthority().intermediate()
    server = issue(authority, tmp_path, "server", 20)
    upstream = issue(authority, tmp_path, "upstream", 10)
    running = application(f"security_protocol: SSL, tls: {{{server}}}, upstream_tls: {{{upstream}}}")
    assert ends(running) == {"client": in_days(20), "upstream": in_days(10)}
    issue(authority, tmp_path, "server", 25)
    assert ends(running) == {"client": in_days(25), "upstream": in_days(10)}
    # What can't be used is not in use.
    key = tmp_path / "upstream.key"
    issue(authority, tmp_path, "upstream", 15)
    renewed = key.read_bytes()
    key.write_bytes((tmp_path / "server.key").read_bytes())
    assert ends(running) == {"client": in_days(25), "upstream": in_days(10)}
    key.write_bytes(renewed)
    assert ends(running) == {"client": in_days(25), "upstream": in_days(15)}


def test_the_end_of_the_rest_apis_certificate_is_shown(
    application: Callable[..., Application], tmp_path: Path
) -> None:
    running = application("", rest=f"tls: {{{issue(CertificateAuthority(), tmp_path, 'rest', 5)}}}")
    assert ends(running, "rest") == {"client": in_days(5)}


def test_of_certificates_for_several_names_the_first_end_is_shown(
    application: Callable[[str], Application], tmp_path: Path
) -> None:
    authority = CertificateAuthority()
    server = issue(authority, tmp_path, "server", 20)
    names = ", ".join(
        f"{{name: {name}.test, {issue(authority, tmp_path, name, days)}}}"
        for name, days in (("one", 30), ("two", -1))
    )
    running = application(f"security_protocol: SSL, tls: {{{server}, server_names: [{names}]}}")
    assert ends(running) == {"client": in_days(-1)}


@pytest.mark.parametrize("upstream_tls", ["", "upstream_tls: {}"])
def test_without_a_certificate_of_ours_there_is_no_end(
    application: Callable[[str], Application], upstream_tls: str
) -> None:
    assert ends(application(upstream_tls)) == {}


def test_the_peers_of_the_limits_are_counted(application: Callable[[str], Application]) -> None:
    running = application("")

    def peers(scope: Scope) -> float | None:
        return running._metrics.registry.get_sample_value("kafka_telemetry_limit_peers", {"scope": scope})

    assert (peers("source_address"), peers("principal")) == (0, 0)
    for number in range(3):
        running._limits.telemetry_request(connection(number, principal="User:alice"), 0.0)
        running._limits.telemetry_request(connection(number, source_address="10.0.0.8"), 0.0)
    assert (peers("source_address"), peers("principal")) == (2, 1)
