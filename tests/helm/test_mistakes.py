"""The chart refuses each configuration with which the receiver would end at its start."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from receiver.cli import app
from tests.helm.configurations import configurations
from tests.helm.mistakes import GOOD, MISTAKES, TLS, Config, rules
from tests.testbed.helm import Helm, HelmError, parse

pytestmark = pytest.mark.full

#: What the chart's own defaults are for, in a file.
_BASE: Final[Mapping[str, Any]] = {
    "listeners": [{"name": "CLIENT", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092"}],
    "rest": {"bind": "0.0.0.0:8642", "tokens": [{"name": "nobody", "role": "viewer", "sha256": "00" * 32}]},
}
_CASES: Final = [
    pytest.param(config, id=f"{rule}-{number}")
    for rule, configs in MISTAKES.items()
    for number, config in enumerate(configs)
]


def _check(config: Config, folder: Path) -> tuple[int, str]:
    file = folder / "receiver.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    done = CliRunner().invoke(app, ["config", "check", "--elsewhere", str(file)])
    return done.exit_code, done.output


def test_every_rule_of_the_settings_has_a_mistake() -> None:
    assert rules() - MISTAKES.keys() == set()


@pytest.mark.parametrize("config", _CASES)
def test_receiver_and_chart_refuse_it(helm: Helm, config: Config, tmp_path: Path) -> None:
    whole = copy.deepcopy({**_BASE, **config})
    rest = whole["rest"]
    if not (rest.get("tokens") or rest.get("clients")):
        rest["tokens"] = _BASE["rest"]["tokens"]
    status, said = _check(whole, tmp_path)
    assert status == 2, said
    with pytest.raises(HelmError) as refused:
        helm.template({"config": config})
    message = str(refused.value)
    # Refused by the schema or a check, and not by a defect of a template.
    assert "schema(s)" in message or "execution error" in message or "error parsing regexp" in message, (
        message
    )
    # A receiver's value may be part of a secret. A list of addresses is the longest of its kind.
    assert "hunter2" not in message
    assert len(message) < 1200, message


@pytest.mark.parametrize(
    "listener",
    [
        {"tls": TLS},
        {"security_protocol": "SASL_SSL"},
        {"upstream_tls": {"cert_file": "/run/secrets/tls/a.crt"}},
        {"proxy_protocol": {"from": ["10.0.0.1/8"]}},
        {"advertised": "a b:9092"},
        {"security_protocol": "SSL", "tls": TLS, "principal_mapping_rules": "RULE:(/$1/"},
    ],
)
def test_a_gateways_listener_is_checked_as_the_receiver_reads_it(helm: Helm, listener: Config) -> None:
    broker = {"id": 1, "upstream": "broker:9092", "port": 19092}
    values = {"sidecar": {"enabled": False}, "gateway": {"enabled": True}}
    for keys in (
        {"brokers": [{**broker, "listener": listener}]},
        {"brokers": [broker], "listener": listener},
    ):
        with pytest.raises(HelmError):
            helm.template({**values, "gateway": {"enabled": True, **keys}})
    # In two halves it is whole.
    halves = {"brokers": [{**broker, "listener": {"tls": TLS}}], "listener": {"security_protocol": "SSL"}}
    helm.template({**values, "gateway": {"enabled": True, **halves}})


def test_what_the_receiver_takes_is_not_refused(helm: Helm, tmp_path: Path) -> None:
    text = helm.template({"config": GOOD})
    (found,) = configurations(parse(text))
    status, said = _check(yaml.safe_load(found.text), tmp_path)
    assert status == 0, said
