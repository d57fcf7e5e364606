"""Privacy rules: dropped and hashed attributes, labels and metrics."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

from receiver.settings.metric_processing import PrivacySettings
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.labels import Labels, identity_labels
from receiver.telemetry.steps.privacy import Privacy
from tests.unit.telemetry.parts import client

KEY = b"0123456789abcdef"


def privacy(*rules: dict[str, str], key: bytes = KEY, pseudonymize: tuple[str, ...] = ()) -> Privacy:
    settings = {"rules": rules, "pseudonymize": pseudonymize, "key": {"file": "key"}}
    return Privacy(PrivacySettings.model_validate(settings), key)


def hashed(text: str, key: bytes = KEY) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:16]


def labels(**changes: Any) -> Labels:
    return identity_labels(client(**changes))


def test_the_first_matching_rule_decides() -> None:
    rules = privacy({"attribute": "top.*", "action": "hash"}, {"attribute": "topic|x", "action": "drop"})
    assert rules.attribute("topic", "topic") == "hash"
    assert rules.attribute("x", "x") == "drop"
    assert rules.attribute("atopic", "atopic") is None
    # A rule applies to the old key and to the new one.
    assert rules.attribute("x", "y") == "drop"
    assert rules.attribute("x", "topic") == "hash"


def test_metrics_are_dropped_by_their_whole_name() -> None:
    rules = privacy({"metric": r"org\.apache\..*", "action": "drop"})
    assert rules.metrics
    assert not rules.attributes
    assert rules.metric("org.apache.x")
    assert not rules.metric("x.org.apache.x")


def test_a_rule_matches_names_with_newlines() -> None:
    rules = privacy(
        {"attribute": "user.*", "action": "drop"}, {"metric": r"secret\..*|other\..*", "action": "drop"}
    )
    assert rules.attribute("user\nname", "user\nname") == "drop"
    assert rules.metric("other.\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (AnyValue(string_value="a"), "a"),
        (AnyValue(int_value=-1), "-1"),
        (AnyValue(bool_value=True), "true"),
        (AnyValue(bool_value=False), "false"),
        (AnyValue(double_value=1.5), "1.5"),
    ],
)
def test_a_hash_covers_the_text_of_a_value(value: AnyValue, text: str) -> None:
    assert privacy().hashed(value) == hashed(text)


def test_a_hash_of_other_values_covers_their_bytes() -> None:
    rules = privacy()
    one, other = (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=number)])) for number in (1, 2))
    assert rules.hashed(one) == rules.hashed(one) != rules.hashed(other)


def test_another_key_gives_other_hashes() -> None:
    assert privacy().hash_of("a") != privacy(key=b"x" * 16).hash_of("a")


def test_without_rules_nothing_changes() -> None:
    rules = Privacy(PrivacySettings(), None)
    assert not rules.on
    assert rules.labels(labels()) == labels()


def test_labels_are_dropped_and_hashed_by_rule() -> None:
    rules = privacy(
        {"attribute": "client_source_.*", "action": "drop"}, {"attribute": "client_id", "action": "hash"}
    )
    assert rules.labels(labels()) == labels()._replace(
        client_source_address=None, client_source_port=None, client_id=hashed("java-producer")
    )


def test_pseudonyms_are_hashes_that_keep_a_principals_type() -> None:
    rules = privacy(pseudonymize=("principal", "client_source_address", "client_id"))
    assert rules.labels(labels(principal="User:alice")) == labels()._replace(
        principal=f"User:{hashed('alice')}",
        client_source_address=hashed("10.0.0.7"),
        client_id=hashed("java-producer"),
    )
    assert rules.labels(labels(principal="alice")).principal == hashed("alice")
    assert rules.labels(labels(principal="User:CN=a:b")).principal == f"User:{hashed('CN=a:b')}"


@pytest.mark.parametrize("shared", ["User:ANONYMOUS", "User:unknown"])
def test_shared_principals_are_not_hashed(shared: str) -> None:
    rules = privacy(pseudonymize=("principal", "client_id"))
    assert rules.labels(labels(principal=shared, client_id="")) == labels(principal=shared, client_id="")


def test_a_rule_precedes_a_pseudonym() -> None:
    rules = privacy({"attribute": "principal", "action": "drop"}, pseudonymize=("principal",))
    assert rules.labels(labels()).principal is None


@pytest.mark.parametrize(
    "key", ["member_id", "group_member_id", "thread_id", "thread-id", "client.id", "messaging.client.id"]
)
def test_attributes_that_contain_a_hidden_client_id_are_hashed(key: str) -> None:
    assert privacy(pseudonymize=("client_id",)).attribute(key, key) == "hash"
    assert privacy(pseudonymize=("principal",)).attribute(key, key) is None
    # An operator's rule takes precedence.
    dropped = privacy(
        {"attribute": ".*member_id|.*(thread|client).id", "action": "drop"}, pseudonymize=("client_id",)
    )
    assert dropped.attribute(key, key) == "drop"


def test_the_client_id_in_a_librdkafka_scope_is_hashed() -> None:
    rules = privacy(pseudonymize=("client_id",))
    assert rules.scope_name("my#app#producer-1") == f"{hashed('my#app')}#producer-1"
    assert rules.scope_name("kgo") == "kgo"
    assert privacy().scope_name("app#producer-1") == "app#producer-1"


@pytest.mark.parametrize("key", [None, b"", b"0123456789abcde"])
def test_a_short_key_is_refused_and_not_shown(key: bytes | None) -> None:
    settings = PrivacySettings.model_validate({"pseudonymize": ["principal"], "key": {"file": "key"}})
    with pytest.raises(InvalidValueError) as raised:
        Privacy(settings, key)
    assert str(raised.value) == (
        f"privacy.key: '{len(key or b'')} bytes' are too few for the key of the hashes; "
        "write 16 random bytes or more"
    )


def test_long_texts_are_not_cached() -> None:
    rules = privacy({"attribute": "a*", "action": "drop"})
    for length in (300, 400, 300):
        assert rules.attribute("a" * length, "a" * length) == "drop"
        assert rules.hash_of("a" * length) == hashed("a" * length)
