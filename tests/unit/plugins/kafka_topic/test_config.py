from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.kafka_topic import KafkaTopicReceiver
from receiver.host.discovery import PluginConfigError, load_plugins

BASE = {"bootstrap_servers": "127.0.0.1:9092", "topic": "client-telemetry"}
PLAIN = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "hunter2"}
OAUTH = {"token_endpoint_url": "https://idp.example/token", "client_id": "me", "client_secret": "hunter2"}


def plugin(**settings: Any) -> KafkaTopicReceiver:
    (hosted,) = load_plugins([{"type": "kafka_topic", **BASE, **settings}])
    assert isinstance(hosted.plugin, KafkaTopicReceiver)
    return hosted.plugin


def properties(**settings: Any) -> dict[str, Any]:
    config: Any = plugin(**settings).config
    found: dict[str, Any] = config.client_properties()
    return found


def test_the_defaults() -> None:
    config: Any = plugin().config
    assert (config.compression, config.timeout_ms, config.security_protocol) == ("zstd", 10_000, "PLAINTEXT")
    assert config.create_topic.model_dump() == {
        "partitions": None,
        "replication_factor": None,
        "retention_hours": None,
    }


def test_the_sidecars_own_client_pushes_no_metrics_and_writes_no_log() -> None:
    found = properties()
    assert found["enable.metrics.push"] is False
    assert found["allow.auto.create.topics"] is False
    assert found["log_level"] == 0


def test_settings_map_to_librdkafka_properties(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text("x")
    found = properties(
        security_protocol="SASL_SSL",
        **PLAIN,
        tls={"ca_file": str(file), "cert_file": str(file), "key_file": str(file)},
    )
    assert found["security.protocol"] == "SASL_SSL"
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == (
        "PLAIN",
        "alice",
        "hunter2",
    )
    for name in ("ca", "certificate", "key"):
        assert found[f"ssl.{name}.location"] == str(file)
    found = properties(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", oauth={**OAUTH, "scope": "kafka"}
    )
    assert found["sasl.oauthbearer.method"] == "oidc"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://idp.example/token"
    assert found["sasl.oauthbearer.client.secret"] == "hunter2"
    assert found["sasl.oauthbearer.scope"] == "kafka"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"bootstrap_servers": "kafka"},
            'plugins[0].bootstrap_servers: "kafka": kafka: has no port; write for',
        ),
        ({"bootstrap_servers": "a:1,b:99999"}, "b:99999: the port must be a number from 1 to 65535"),
        (
            {"bootstrap_servers": "a:1,alice:hunter2,hunter2@h:9092"},
            'plugins[0].bootstrap_servers: "***@h:9092": must not hold a user or password; use sasl_username',
        ),
        ({"topic": "a b"}, 'plugins[0].topic: "a b": is no topic'),
        ({"topic": ".."}, "is no topic's name"),
        ({"compression": "brotli"}, 'plugins[0].compression: "brotli": expected one of none, gzip'),
        ({"tls": {}}, "tls goes with SSL; security_protocol is PLAINTEXT"),
        (PLAIN, "sasl_mechanism goes with SASL; security_protocol is PLAINTEXT"),
        ({"security_protocol": "SASL_SSL"}, "plugins[0]: security_protocol SASL_SSL needs sasl_mechanism"),
        ({"sasl_password": "hunter2"}, "sasl_username and sasl_password go with PLAIN and SCRAM"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "alice"},
            "sasl_username and sasl_password go with PLAIN and SCRAM",
        ),
        (
            {"security_protocol": "SASL_SSL", **PLAIN, "sasl_password": ""},
            "sasl_username and sasl_password must not be empty",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "oauth and sasl_mechanism OAUTHBEARER go together",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "oauth": {**OAUTH, "token_endpoint_url": "https://u:hunter2@idp"},
            },
            "must be an http:// or https:// URL without a user",
        ),
        (
            {"security_protocol": "SSL", "tls": {"ca_file": "/no/such.pem"}},
            'plugins[0].tls.ca_file: "/no/such.pem": ',
        ),
        (
            {"security_protocol": "SSL", "tls": {"cert_file": __file__}},
            "plugins[0].tls: cert_file and key_file go together: key_file is missing",
        ),
        ({"create_topic": {"partitions": 0}}, "plugins[0].create_topic.partitions: 0: expected an integer"),
        ({"librdkafka": {}}, "librdkafka: unknown key"),
    ],
)
def test_a_wrong_setting_is_named_with_its_fix(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(PluginConfigError) as caught:
        plugin(**settings)
    assert error in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    one = plugin(security_protocol="SASL_PLAINTEXT", **PLAIN)
    assert "hunter2" not in "".join(
        [repr(one), repr(one.config), str(one.config), one.config.model_dump_json()]
    )


def test_an_invalid_certificate_fails_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text("x")
    one = plugin(security_protocol="SSL", tls={"ca_file": str(file)})
    with pytest.raises(OSError, match=r"ssl\.ca\.location failed"):
        one.start()
    one.stop()


def test_a_missing_client_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "plugins.kafka_topic.producer", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(PluginConfigError) as caught:
        plugin()
    assert 'plugins[0].type: "kafka_topic": the plugin cannot be constructed: ' in str(caught.value)
    assert "pip install 'kafka-client-telemetry[kafka-topic]'" in str(caught.value)
