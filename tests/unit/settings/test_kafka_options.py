"""The client options of the Kafka store: names, values, logins, and no value in an error."""

from typing import Any

import pytest
from pydantic import ValidationError

from receiver.settings.kafka_options import named_files
from receiver.settings.subscriptions import KafkaStoreSettings

LOGIN: dict[str, Any] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": {"file": "/run/secrets/password"},
}


def settings(options: dict[str, Any]) -> KafkaStoreSettings:
    return KafkaStoreSettings.model_validate({"bootstrap_servers": "a:1,b:2", "options": options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        LOGIN,
        {**LOGIN, "security.protocol": "SASL_PLAINTEXT"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": {"file": "/run/secrets/jaas"},
        },
        {"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
        {"ssl.endpoint.identification.algorithm": "", "client.id": "x", "request.timeout.ms": 1000},
    ],
)
def test_options_survive_the_way_to_another_process(options: dict[str, Any]) -> None:
    given = settings(options)
    assert KafkaStoreSettings.model_validate_json(given.model_dump_json(), strict=True) == given
    assert given.options == options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sasl.pass": "hunter2"}, "sasl.pass: unknown option; did you mean sasl."),
        ({"x": "hunter2"}, "x: unknown option; known are client.id, request.timeout.ms, security.protocol"),
        ({**LOGIN, "sasl.password": ["hunter2"]}, "sasl.password: expected text, or {file: PATH}"),
        ({**LOGIN, "sasl.password": {"path": "hunter2"}}, "sasl.password: expected text, or {file: PATH}"),
        (
            {"security.protocol": "hunter2"},
            "security.protocol: expected one of PLAINTEXT, SSL, SASL_PLAINTEXT",
        ),
        ({"ssl.truststore.type": "hunter2"}, "ssl.truststore.type: expected one of PEM"),
        ({"request.timeout.ms": 1}, "request.timeout.ms: expected an integer, 1000 to 60000"),
        ({**LOGIN, "sasl.mechanisms": "PLAIN"}, "sasl.mechanisms: sets the same as sasl.mechanism; omit one"),
        (
            {"sasl.username": "hunter2"},
            "sasl.username: has no effect with security.protocol PLAINTEXT; set that to SASL_SSL",
        ),
        (
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism: required; give one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        (
            {key: value for key, value in LOGIN.items() if key != "sasl.password"},
            "sasl.password: required with SASL; give text, or {file: PATH}",
        ),
    ],
)
def test_a_wrong_option_is_named_without_its_value(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(options)
    assert problem in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_options_are_not_shown() -> None:
    assert "hunter2" not in repr(settings({**LOGIN, "sasl.password": "hunter2"}))


def test_files_are_found() -> None:
    assert list(named_files({**LOGIN, "ssl.ca.location": "/ca.pem"})) == [
        ("sasl.password", "/run/secrets/password"),
        ("ssl.ca.location", "/ca.pem"),
    ]
