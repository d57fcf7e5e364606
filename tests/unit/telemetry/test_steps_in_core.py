"""Normalisation, privacy and folding in the whole telemetry core."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.settings.model import TelemetrySettings
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.owners import Owner, Owners
from receiver.telemetry.rules import Rules
from receiver.telemetry.steps.privacy import Privacy
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire.error_codes import ErrorCode
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics
from tests.unit.telemetry.parts import Client, all_metrics, connection, labels_of, payload, subscription

KEY = b"0123456789abcdef"
RATE = "org.apache.kafka.producer.connection.creation.rate"


def settings(**changes: Any) -> TelemetrySettings:
    return TelemetrySettings.model_validate(changes)


def client(key: bytes | None = None, *, connected: dict[str, Any] | None = None, **changes: Any) -> Client:
    made = Client(subscription(), connected=connection(**(connected or {})))
    made.telemetry.replace_rules(Rules(settings(**changes), key))
    assert made.get(0).response.error_code == ErrorCode.NONE
    return made


def test_a_push_is_normalised_by_default() -> None:
    outcome = client().push(1, payload("ck-producer-star-02"))
    assert outcome.push is not None
    units = {metric.unit for metric in all_metrics(outcome.push.payload.metrics)}
    assert units == {"1/s", "{connection}", "ms"}


def test_known_bad_values_are_dropped_by_client_version() -> None:
    metrics = push(resource_metrics(gauge(RATE, 1.0), gauge("a", 1.0)))
    old = client(connected={"client_software_name": "kgo", "client_software_version": "v1.21.3"})
    outcome = old.push(1, metrics)
    assert outcome.metrics.steps.bad_points == 1
    new = client(connected={"client_software_name": "kgo", "client_software_version": "v1.22.2"})
    outcome = new.push(1, metrics)
    assert outcome.metrics.steps.bad_points == 0


def test_the_owner_is_a_label_from_the_next_push_on() -> None:
    made = client()

    def owner(now: float) -> str | None:
        outcome = made.push(now, push(resource_metrics(gauge("a", 1.0), client_owner="forged")))
        assert outcome.push is not None
        (labels,) = labels_of(outcome.push.payload.metrics)
        return labels.get("client_owner")

    assert owner(1) is None
    made.telemetry.owners = Owners([Owner(team="payments", match={"client_id": ".*"})])
    assert owner(400) == "payments"
    made.telemetry.owners = Owners()
    assert owner(800) is None


def test_the_context_shows_no_more_than_the_labels() -> None:
    pseudonyms = Privacy(
        settings(privacy={"pseudonymize": ["principal"], "key": {"file": "key"}}).privacy, KEY
    ).hash_of
    private = client(
        KEY,
        connected={"principal": "User:alice", "sasl_mechanism": "PLAIN"},
        privacy={
            "key": {"file": "key"},
            "pseudonymize": ["principal", "client_source_address", "client_id"],
            "rules": [
                {"attribute": "client_source_port|sasl_mechanism|cluster_id", "action": "drop"},
                {"attribute": "client_software_version|listener", "action": "hash"},
            ],
        },
    )
    outcome = private.push(1, payload("java44-consumer-star-02"))
    assert outcome.push is not None
    context = outcome.push.context
    (labels,) = labels_of(outcome.push.payload.metrics)
    assert context.principal == labels["principal"] == f"User:{pseudonyms('alice')}"
    assert context.source_address == labels["client_source_address"] == pseudonyms("10.0.0.7")
    assert context.client_id == labels["client_id"] == pseudonyms("java-producer")
    assert context.client_software_version == labels["client_software_version"] == pseudonyms("4.4.0")
    assert context.source_port == 0
    assert context.sasl_mechanism is context.cluster_id is None
    assert context.listener == labels["listener"] == pseudonyms("CLIENT")
    assert not {"client_source_port", "sasl_mechanism"} & labels.keys()
    for hidden in (b"alice", b"10.0.0.7", b"java-producer", b"java-consumer"):
        assert hidden not in outcome.push.payload.data


def test_a_client_id_is_folded_before_it_is_hashed() -> None:
    hashed = Privacy(
        settings(privacy={"pseudonymize": ["client_id"], "key": {"file": "k"}}).privacy, KEY
    ).hash_of
    folding = {"client_id_folding": [{"pattern": r"(.*)-producer", "replacement": r"\1"}]}
    folded = client(series=folding).push(1, payload("ck-producer-star-02"))
    assert folded.push is not None
    assert folded.push.context.client_id == "java"
    both = client(KEY, series=folding, privacy={"pseudonymize": ["client_id"], "key": {"file": "k"}})
    outcome = both.push(1, payload("ck-producer-star-02"))
    assert outcome.push is not None
    assert labels_of(outcome.push.payload.metrics)[0]["client_id"] == hashed("java")


def test_replaced_settings_apply_to_the_next_push() -> None:
    one = client()
    one.push(1, payload("ck-producer-star-02"))
    one.telemetry.replace_rules(
        Rules(settings(privacy={"rules": [{"attribute": "client_.*", "action": "drop"}]}))
    )
    assert one.get(2).response.error_code == ErrorCode.NONE
    outcome = one.push(3, payload("ck-producer-star-02"))
    assert outcome.push is not None
    (labels,) = labels_of(MetricsData.FromString(outcome.push.payload.data))
    assert not any(label.startswith("client_") for label in labels)


def test_a_missing_key_changes_nothing() -> None:
    one = client()
    hashing = settings(privacy={"pseudonymize": ["principal"], "key": {"file": "key"}})
    with pytest.raises(InvalidValueError):
        one.telemetry.replace_rules(Rules(hashing))
    outcome = one.push(1, payload("ck-producer-star-02"))
    assert outcome.push is not None
    assert outcome.push.context.principal == "User:ANONYMOUS"


def test_it_does_not_start_without_the_key() -> None:
    made = client()
    with pytest.raises(InvalidValueError, match=r"privacy\.key"):
        ClientTelemetry(
            settings=settings(privacy={"pseudonymize": ["principal"], "key": {"file": "key"}}),
            subscriptions=made.telemetry.subscriptions,
            limits=made.telemetry._limits,
            random_bytes=bytes,
        )
