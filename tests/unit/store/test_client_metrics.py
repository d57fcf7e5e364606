"""Subscriptions as client metrics resources: what Kafka's tools see, and what their changes do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.store.client_metrics import ResourceError, altered, described, replaced
from receiver.store.kafka_format import NOBODY
from receiver.telemetry.subscription import Subscription
from receiver.wire.altered_configs import AlteredConfig, Operation
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k32_describe_configs import DEFAULT_CONFIG

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
RICH = Subscription(
    name="s",
    metrics=("a.", "b."),
    interval_ms=5000,
    match={"client_id": "x.*", "principal": "User:a", "client_source_port": "1,2"},
    enabled=False,
    expires_at=NOW,
    labels={"team": "t"},
    description="mine",
)


def shown(subscription: Subscription | None) -> dict[str, str]:
    """The configs that were set."""
    return {item.name: item.value for item in described(subscription) if item.source != DEFAULT_CONFIG}


def change(existing: Subscription | None, **configs: str | None) -> Subscription | None:
    """IncrementalAlterConfigs; None deletes a key."""
    changes = [
        AlteredConfig(key.replace("_", "."), value, Operation.DELETE if value is None else Operation.SET)
        for key, value in configs.items()
    ]
    return altered("s", existing, changes, changed_by="User:ann", changed_at=NOW)


def test_a_resource_shows_what_kafka_has_keys_for() -> None:
    assert shown(RICH) == {
        "interval.ms": "5000",
        "match": f"client_id=x.*,client_instance_id={NOBODY}",
        "metrics": "a.,b.",
    }
    assert [item.name for item in described(RICH)] == ["interval.ms", "match", "metrics"]
    assert [item.value for item in described(None)] == ["300000", "", ""]
    assert shown(None) == {}
    assert shown(Subscription(name="all", metrics=("",))) == {"metrics": "*"}
    assert shown(Subscription(name="none", metrics=())) == {"metrics": ""}


def test_settings_without_a_key_survive() -> None:
    made = change(RICH, metrics="c.", interval_ms="7000")
    assert made is not None
    assert (made.metrics, made.interval_ms) == (("c.",), 7000)
    for field in ("match", "enabled", "expires_at", "labels", "description"):
        assert getattr(made, field) == getattr(RICH, field)
    assert (made.changed_by, made.changed_at) == ("User:ann", NOW)
    # Patterns that Kafka could not read are not the tool's to delete.
    without = change(RICH, match=None)
    assert without is not None
    assert without.match == {"principal": "User:a", "client_source_port": "1,2"}
    over = change(RICH, match="client_source_port=9")
    assert over is not None
    assert over.match == {"principal": "User:a", "client_source_port": "9"}


def test_a_new_one_has_kafkas_defaults() -> None:
    assert change(None, metrics=" a. , b.,") == Subscription(name="s", metrics=("a.", "b."))
    assert change(None, interval_ms=" 2000 ") == Subscription(name="s", metrics=(), interval_ms=2000)
    assert change(None, metrics="") == Subscription(name="s", metrics=())


def test_a_resource_ends_with_its_last_config() -> None:
    first = change(None, metrics="a.", interval_ms="5000", match="client_id=x")
    second = change(first, metrics=None)
    assert second == Subscription(name="s", metrics=(), interval_ms=5000, match={"client_id": "x"})
    third = change(second, match=None)
    assert third == Subscription(name="s", metrics=(), interval_ms=5000)
    assert change(third, interval_ms=None) is None
    assert change(first, metrics=None, interval_ms=None, match=None) is None
    assert change(Subscription(name="s", metrics=()), metrics=None) is None
    # A deletion of what is not there changes nothing.
    assert change(Subscription(name="s", metrics=()), match=None) == Subscription(name="s", metrics=())
    assert change(None) is None
    assert change(None, metrics=None) is None
    assert change(RICH) is RICH
    assert change(RICH, unknown=None) is RICH


def test_all_configs_can_be_replaced() -> None:
    def replace(*configs: AlteredConfig) -> Subscription | None:
        return replaced("s", RICH, configs, changed_by="User:ann", changed_at=NOW)

    made = replace(AlteredConfig("metrics", "q."))
    assert made is not None
    assert (made.metrics, made.interval_ms, made.labels) == (("q.",), 300_000, {"team": "t"})
    assert "client_id" not in made.match
    assert replace() is None


@pytest.mark.parametrize(
    ("config", "error_code", "message"),
    [
        (AlteredConfig("interval.ms", "50"), 42, "50 is out of range"),
        (AlteredConfig("interval.ms", "abc"), 40, "Invalid value abc for configuration interval.ms"),
        (AlteredConfig("foo", "1"), 42, "Unknown client metrics configuration: foo"),
        (AlteredConfig("match", "a=b"), 40, "Illegal client matching pattern: a=b"),
        (AlteredConfig("match", "client_id"), 40, "Illegal client matching pattern: client_id"),
        (AlteredConfig("match", "client_id=a=b"), 40, "Illegal client matching pattern: client_id=a=b"),
        (AlteredConfig("match", "principal=User:a"), 40, "the sidecar's REST API has further selectors"),
        (AlteredConfig("match", "client_id=("), 40, "is no regular expression"),
        (AlteredConfig("metrics", "bad prefix!"), 40, "is no prefix of a metric name"),
        (AlteredConfig("metrics", None), 42, "Null value not supported for : metrics"),
        (AlteredConfig("metrics", "a.", Operation.APPEND), 40, "Can't APPEND to key metrics"),
        (AlteredConfig("match", "a.", Operation.SUBTRACT), 40, "Can't SUBTRACT to key match"),
        (AlteredConfig("metrics", "a.", 9), 42, "Unknown operation 9"),
    ],
)
def test_a_wrong_value_gets_kafkas_error(config: AlteredConfig, error_code: int, message: str) -> None:
    with pytest.raises(ResourceError) as raised:
        altered("s", RICH, [config], changed_by=None, changed_at=NOW)
    assert raised.value.error_code == error_code
    assert message in str(raised.value)


def test_a_name_and_each_key_is_needed_once() -> None:
    metrics = AlteredConfig("metrics", "a.")
    for name, changes in (("", [metrics]), ("s", [metrics, metrics]), ("\n", [metrics])):
        with pytest.raises(ResourceError) as raised:
            altered(name, None, changes, changed_by=None, changed_at=NOW)
        assert raised.value.error_code == ErrorCode.INVALID_REQUEST


@given(st.text(max_size=3000))
def test_an_error_is_short(text: str) -> None:
    for key in ("metrics", "interval.ms", "match", text):
        try:
            altered("s", None, [AlteredConfig(key, text)], changed_by=None, changed_at=NOW)
        except ResourceError as error:
            message = str(error)
        else:
            continue
        assert len(message) < 1500
