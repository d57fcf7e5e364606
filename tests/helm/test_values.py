"""The chart refuses wrong values with an error that names the field and the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.testbed.helm import Helm, HelmError

_BRIDGE = {"enabled": True, "token": {"secretName": "token"}, "tls": {"secretName": "certificate"}}
_GATEWAY: Final[dict[str, Any]] = {
    "enabled": True,
    "brokers": [{"id": 1, "upstream": "broker-1:9092", "port": 19092}],
}
_ROLLUP: Final[dict[str, Any]] = {
    "enabled": True,
    "config": {"kafka": {"bootstrap_servers": "kafka:9092", "topic": "telemetry"}},
    "postgres": {"secretName": "telemetry-postgres"},
}

#: Values, and words of the message.
_WRONG: Final[Mapping[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "unknown key": ({"sidecars": {}}, ("sidecars", "not allowed")),
    "unknown key in a section": ({"gateway": {"replica": 2}}, ("/gateway", "replica", "not allowed")),
    "text for a number": (
        {"gateway": {"replicas": "two"}},
        ("/gateway/replicas", "got string, want null or integer"),
    ),
    "text for a switch": ({"gateway": {"enabled": "yes"}}, ("/gateway/enabled", "got string, want boolean")),
    "too few": ({"gateway": {"replicas": 0}}, ("/gateway/replicas", "minimum: got 0, want 1")),
    "unknown choice": ({"rollup": {"kind": "Pod"}}, ("/rollup/kind", "Deployment", "SparkApplication")),
    "digest": (
        {"image": {"digest": "latest"}},
        ("/image/digest", "'latest' does not match pattern", "sha256:"),
    ),
    "quantity": ({"gateway": {"persistence": {"size": "5 GB"}}}, ("/gateway/persistence/size", "5 GB")),
    "duration": (
        {"monitoring": {"podMonitor": {"interval": "30"}}},
        ("/monitoring/podMonitor/interval", "30"),
    ),
    "broker without port": (
        {"gateway": {"enabled": True, "brokers": [{"id": 1, "upstream": "b:9092"}]}},
        ("/gateway/brokers/0", "missing property 'port'"),
    ),
    "token without a Secret": ({"tokens": [{"name": "ops"}]}, ("/tokens/0", "secretName")),
    "receiver's key": ({"config": {"listener": []}}, ("/config", "listener", "not allowed")),
    "receiver's choice": (
        {
            "config": {
                "listeners": [
                    {"name": "A", "bind": "0:19092", "upstream": "b:9092", "security_protocol": "TLS"}
                ]
            }
        },
        ("/config/listeners/0/security_protocol", "SASL_SSL"),
    ),
    "a password of the cluster as text": (
        {
            "config": {
                "subscriptions": {
                    "store": "kafka",
                    "kafka": {
                        "bootstrap_servers": "kafka:9092",
                        "options": {
                            "security.protocol": "SASL_SSL",
                            "sasl.mechanism": "PLAIN",
                            "sasl.username": "a",
                            "sasl.password": "hush",
                        },
                    },
                }
            }
        },
        ("config.subscriptions.kafka.options.sasl.password", "{file: PATH}"),
    ),
    "a subscription's key": (
        {"subscriptions": [{"name": "a", "metrics": [], "interval": 5}]},
        ("/subscriptions", "interval", "not allowed"),
    ),
    "a subscription's bound": (
        {"subscriptions": {"a": {"metrics": [], "interval_ms": 5}}},
        ("/subscriptions/a/interval_ms", "minimum: got 5, want 100"),
    ),
    "a subscription without a name": ({"subscriptions": [{"metrics": []}]}, ("/subscriptions/0", "name")),
    "a preset that does not come with the receiver": (
        {"subscriptions": [{"name": "a", "preset": "panels"}]},
        ("/subscriptions/0/preset", "value must be 'dashboards'"),
    ),
    "metrics beside a preset": (
        {"subscriptions": [{"name": "a", "preset": "dashboards", "metrics": []}]},
        ("/subscriptions/0", "oneOf"),
    ),
    "a subscription without metrics": ({"subscriptions": [{"name": "a"}]}, ("/subscriptions/0", "metrics")),
    "a subscription twice": (
        {"subscriptions": [{"name": "a", "metrics": []}, {"name": "a", "metrics": []}]},
        ("subscriptions[1].name", "a", "subscriptions[0].name"),
    ),
    "two stores of subscriptions": (
        {
            "subscriptions": [{"name": "a", "metrics": []}],
            "config": {"subscriptions": {"path": "./subscriptions.db"}},
        },
        ("config.subscriptions", "subscriptions.db", "leave one"),
    ),
    "an owner's key": (
        {"owners": [{"team": "a", "match": {}, "email": "a"}]},
        ("/owners", "email", "not allowed"),
    ),
    "an owner without a match": ({"owners": {"a": {"contact": "b"}}}, ("/owners/a", "match")),
    "an owner twice": (
        {"owners": [{"team": "a", "match": {}}, {"team": "a", "match": {}}]},
        ("owners[1].team", "a", "owners[0].team"),
    ),
    "two folders of owners": (
        {"owners": [{"team": "a", "match": {}}], "config": {"owners": {"path": "./owners.d"}}},
        ("config.owners", "owners.d", "leave one"),
    ),
    "roll-up's key": (
        {"rollup": {"config": {"sources": "kafka"}}},
        ("/rollup/config", "sources", "not allowed"),
    ),
    "gateway without brokers": ({"gateway": {"enabled": True}}, ("gateway.brokers", "id, upstream and port")),
    "two brokers with one id": (
        {
            "gateway": {
                **_GATEWAY,
                "brokers": [*_GATEWAY["brokers"], {"id": 1, "upstream": "b:9092", "port": 19093}],
            }
        },
        ("gateway.brokers[1].id", "node.id"),
    ),
    "privileged port": (
        {"gateway": {**_GATEWAY, "brokers": [{"id": 1, "upstream": "b:9092", "port": 92}]}},
        ("/gateway/brokers/0/port", "minimum: got 92, want 1,024"),
    ),
    "too little time to end": (
        {"gateway": {**_GATEWAY, "terminationGracePeriodSeconds": 5}},
        ("gateway.terminationGracePeriodSeconds", "13 at least"),
    ),
    "REST on loopback": (
        {"config": {"rest": {"bind": "127.0.0.1:8642"}}},
        ("config.rest.bind", "0.0.0.0:8642"),
    ),
    "probes that need a token": (
        {"config": {"rest": {"open": ["metrics"]}}},
        ("config.rest.open", "add livez"),
    ),
    "a plugin's secret as text": (
        {
            "config": {
                "plugins": [
                    {"type": "otlp", "endpoint": "http://c:4317", "headers": {"authorization": "hush"}}
                ]
            }
        },
        ("config.plugins[0].headers.authorization", "{file: PATH}"),
    ),
    "the sidecar's own password as text": (
        {"config": {"broker": {"login": {"username": "sidecar", "password": "hush"}}}},
        ("/config/broker/login/password", "want object"),
    ),
    "Kafka's login as text": (
        {
            "rollup": {
                **_ROLLUP,
                "config": {"kafka": {**_ROLLUP["config"]["kafka"], "options": {"sasl.jaas.config": "hush"}}},
            }
        },
        ("rollup.config.kafka.options.sasl.jaas.config", "{file: PATH}"),
    ),
    "PostgreSQL's URL as text": (
        {"rollup": {**_ROLLUP, "config": {**_ROLLUP["config"], "postgres": "postgresql://u:hush@h/d"}}},
        ("postgres", "secretName"),
    ),
    "roll-up without PostgreSQL": (
        {"rollup": {**_ROLLUP, "postgres": {}}},
        ("rollup.postgres.secretName", "kubectl create secret"),
    ),
    "spool that is not mounted": (
        {"rollup": {**_ROLLUP, "config": {"source": "spool_files"}}},
        ("rollup.spool.existingClaim", "claim"),
    ),
    "checkpoint that is lost": (
        {"rollup": {**_ROLLUP, "persistence": {"enabled": False}}},
        ("rollup.persistence.enabled", "s3a://"),
    ),
    "spark-submit by the operator": (
        {"rollup": {**_ROLLUP, "kind": "SparkApplication", "submit": {"enabled": True}}},
        ("rollup.submit.enabled", "SparkApplication"),
    ),
    "roll-up that Prometheus can't reach": (
        {"rollup": {**_ROLLUP, "config": {**_ROLLUP["config"], "metrics": {"bind": "127.0.0.1:8643"}}}},
        ("rollup.config.metrics.bind", "0.0.0.0:8643"),
    ),
    "roll-up at the port of Spark's driver": (
        {"rollup": {**_ROLLUP, "config": {**_ROLLUP["config"], "metrics": {"bind": "0.0.0.0:7078"}}}},
        ("rollup.config.metrics.bind: 7078", "Spark's driver"),
    ),
    "roll-up at no port": (
        {"rollup": {**_ROLLUP, "config": {**_ROLLUP["config"], "metrics": {"bind": "0.0.0.0"}}}},
        ("/rollup/config/metrics/bind", "pattern"),
    ),
    "scraped twice": (
        {
            "sidecar": {"podSelector": {"app": "kafka"}},
            "monitoring": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        },
        ("monitoring.podMonitor.enabled", "twice"),
    ),
    "nothing to scrape": (
        {"monitoring": {"podMonitor": {"enabled": True}}},
        ("sidecar.podSelector", "labels of the broker's pods"),
    ),
    "bridge without a token": (
        {"bridge": {"enabled": True, "tls": {"secretName": "certificate"}}},
        ("bridge.token.secretName", "openssl rand -hex 32"),
    ),
    "bridge without a certificate": (
        {"bridge": {"enabled": True, "token": {"secretName": "token"}}},
        ("bridge.tls.secretName", "name of the Service"),
    ),
    "bridge by the chart and by hand": (
        {"bridge": _BRIDGE, "config": {"bridge": {"bind": "127.0.0.1:9714", "token": {"file": "/token"}}}},
        ("config.bridge", "leave it out"),
    ),
    "broker id by nothing": (
        {"sidecar": {"broker": {"idFrom": "podLabel"}}},
        ("sidecar.broker.key", "node id"),
    ),
}


@pytest.mark.parametrize("case", _WRONG)
def test_wrong_values_are_refused_in_readable_words(helm: Helm, case: str) -> None:
    values, words = _WRONG[case]
    with pytest.raises(HelmError) as refused:
        helm.template(values)
    message = str(refused.value)
    assert [word for word in words if word not in message] == [], message
    # The message is short, and shows no secret.
    assert len(message) < 800, message
    assert "hush" not in message
