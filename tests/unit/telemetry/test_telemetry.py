"""Both telemetry RPCs in the whole core: the order of checks, and the life of a client."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from receiver.settings.limits import LimitsSettings
from receiver.settings.model import QuirkSettings, TelemetrySettings
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.outcomes import PushOutcome
from receiver.telemetry.rules import Rules
from receiver.telemetry.subscription import Subscription, SubscriptionSet, subscription_id
from receiver.telemetry.subscription_checks import Temporality
from receiver.telemetry.telemetry import ClientTelemetry
from receiver.wire import k71_get_telemetry_subscriptions
from receiver.wire.error_codes import ErrorCode
from receiver.wire.uuid import ONE_UUID, RESERVED_UUIDS, ZERO_UUID, Uuid
from tests.unit.telemetry.otlp_parts import gauge, push, resource_metrics
from tests.unit.telemetry.parts import (
    COMPRESSED,
    INSTANCE,
    Client,
    all_metrics,
    connection,
    payload,
    ready,
    subscription,
)
from tests.unit.telemetry.zstd_parts import rle_frame

NOW = datetime(2026, 11, 23, tzinfo=UTC)

E = ErrorCode
SMALL = payload("ck-producer-star-01")


# -- GetTelemetrySubscriptions
# ------------------------------------------------------------------------


def test_a_client_without_an_id_gets_one() -> None:
    client = Client(subscription(metrics=("b.", "a."), interval_ms=5000))
    outcome = client.get(0)
    assert outcome.created
    assert outcome.client_instance_id not in RESERVED_UUIDS
    assert client.identity.client_instance_id == outcome.client_instance_id
    assert outcome.response == k71_get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=E.NONE,
        client_instance_id=outcome.client_instance_id,
        subscription_id=subscription_id(outcome.client_instance_id, ("a.", "b."), 5000),
        accepted_compression_types=(4, 3, 1, 2),
        push_interval_ms=5000,
        telemetry_max_bytes=1_048_576,
        delta_temporality=True,
        requested_metrics=("a.", "b."),
    )
    # Another request without an id creates another instance, even on the same connection.
    client.id = ZERO_UUID
    assert client.get(0).client_instance_id != outcome.client_instance_id


def test_an_id_in_use_is_not_assigned_again() -> None:
    drawn = [bytes(range(16)), bytes(range(16)), bytes(range(1, 17))]
    telemetry = ClientTelemetry(
        settings=TelemetrySettings(),
        subscriptions=CurrentSubscriptions(),
        limits=Limits(LimitsSettings()),
        random_bytes=lambda size: drawn.pop(0)[:size],
    )
    request = k71_get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest()
    ids = {
        telemetry.get_telemetry_subscriptions(connection(), request, now=0).client_instance_id
        for _ in range(2)
    }
    assert len(ids) == 2


@pytest.mark.parametrize("given", [INSTANCE, ONE_UUID, Uuid(b"\xff" * 16)])
def test_an_unknown_id_of_a_client_creates_an_instance(given: Uuid) -> None:
    client = Client()
    client.id = given
    outcome = client.get(0)
    assert (outcome.created, outcome.client_instance_id) == (True, given)
    assert outcome.response.client_instance_id == given
    assert outcome.response.requested_metrics == ()
    assert outcome.response.push_interval_ms == 60_000
    assert not client.get(60).created


def test_every_metric_is_requested_by_an_empty_prefix() -> None:
    assert ready().get(100).response.requested_metrics == ("",)


def test_the_answer_to_an_early_get_has_only_the_error() -> None:
    client = ready()
    outcome = client.get(9)
    assert outcome.response == k71_get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse(
        error_code=E.THROTTLING_QUOTA_EXCEEDED
    )
    assert not outcome.created


def test_the_answer_has_the_operators_settings() -> None:
    client = Client(
        settings=TelemetrySettings(
            max_bytes=4096, compression=("gzip",), default_interval_ms=1000, delta_temporality=False
        )
    )
    response = client.get(0).response
    assert response.telemetry_max_bytes == 4096
    assert response.accepted_compression_types == (1,)
    assert response.push_interval_ms == 1000
    assert response.delta_temporality is False


def test_quirks_change_the_subscription_and_its_id() -> None:
    old = connection(
        client_software_name="confluent-kafka-python", client_software_version="2.5.0-rdkafka-2.5.0"
    )
    client = Client(subscription(metrics=("org.apache.kafka.producer.",)), connected=old)
    response = client.get(0).response
    assert response.requested_metrics == ()
    assert response.subscription_id == subscription_id(client.id, (), 10_000)
    instance = client.telemetry.instances.find(client.id)
    assert instance is not None
    assert "librdkafka #4833" in instance.treatment.reasons[0]
    assert instance.assignment.matched == ("all",)


def test_an_invalid_quirk_stops_the_start() -> None:
    rule = QuirkSettings.model_construct(
        client_software_name="(", client_software_version=".*", compression=None, metrics=None, reason=""
    )
    with pytest.raises(InvalidValueError, match=r"telemetry\.quirks\[0\]\.client_software_name"):
        Client(settings=TelemetrySettings.model_construct(**dict(TelemetrySettings()) | {"quirks": (rule,)}))


# -- PushTelemetry: the order of checks
# ---------------------------------------------------------------


@pytest.mark.parametrize("reserved", sorted(RESERVED_UUIDS))
def test_a_push_without_an_id_is_invalid(reserved: Uuid) -> None:
    client = ready()
    outcome = client.push(1, SMALL, client_instance_id=reserved)
    assert outcome.response.error_code == E.INVALID_REQUEST
    assert outcome.problem == "the client instance id is zero or reserved"
    assert client.telemetry.instances.find(reserved) is None
    assert client.identity.client_instance_id == client.id


# Each push fails its own check and all later ones: the first failed check is the answer.
LADDER: list[tuple[ErrorCode, dict[str, Any]]] = [
    (E.UNKNOWN_SUBSCRIPTION_ID, {"subscription_id": 1}),
    (E.UNSUPPORTED_COMPRESSION_TYPE, {"compression_type": 9}),
    (E.TELEMETRY_TOO_LARGE, {"metrics": bytes(5000)}),
    (E.INVALID_RECORD, {"metrics": b"not gzip", "compression_type": 1}),
]


@pytest.mark.parametrize("first", range(len(LADDER)))
def test_the_first_failed_check_is_the_answer(first: int) -> None:
    client = ready(max_bytes=4096)
    changes: dict[str, Any] = {}
    for _, wrong in reversed(LADDER[first:]):
        changes |= wrong
    outcome = client.push(1, **changes)
    assert outcome.response.error_code == LADDER[first][0]
    assert outcome.response.throttle_time_ms == 0
    assert outcome.push is None
    assert outcome.problem
    # The checks before all of these: too early, then terminated.
    assert client.push(2, **changes).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert client.push(3, SMALL, terminating=True).response.error_code == E.NONE
    assert client.push(4, **changes).response.error_code == E.INVALID_REQUEST


def test_an_unknown_instance_may_push_with_the_right_subscription_id() -> None:
    client = ready()
    elsewhere = Client(subscription(), connected=connection(id="another broker"))
    elsewhere.id, elsewhere.subscription_id = client.id, client.subscription_id
    outcome = elsewhere.push(0, SMALL)
    assert outcome.response.error_code == E.NONE
    assert outcome.push is not None
    assert elsewhere.push(1, SMALL).response.error_code == E.THROTTLING_QUOTA_EXCEEDED


def test_a_push_may_come_over_another_connection_than_the_get() -> None:
    client = ready()
    got_over = client.identity
    client.identity = connection(id="c2", source_port=4)
    outcome = client.push(1, SMALL)
    assert outcome.push is not None
    assert outcome.push.context.connection_id == "c2"
    assert outcome.push.context.source_port == 4
    client.telemetry.instances.disconnected(got_over.id)
    assert client.push(11, SMALL).response.error_code == E.NONE
    client.telemetry.instances.disconnected(client.identity.id)
    assert len(client.telemetry.instances) == 0


def test_a_client_that_connects_anew_for_each_push_keeps_its_interval() -> None:
    client = ready()
    accepted = []
    for second in range(1, 60):
        got = client.get(second).response.error_code
        pushed = client.push(second, SMALL).response.error_code
        accepted += [second] if pushed == E.NONE else []
        assert {got, pushed} <= {E.NONE, E.THROTTLING_QUOTA_EXCEEDED}
        client.telemetry.instances.disconnected(client.identity.id)
        client.identity = replace(client.identity, id=f"connection {second}")
    assert accepted == [1, 11, 21, 31, 41, 51]


def test_a_client_whose_answer_was_lost_gets_its_subscriptions_again_at_once() -> None:
    client = ready()
    client.telemetry.instances.disconnected(client.identity.id)
    assert client.get(1).response.error_code == E.NONE
    assert client.push(2, SMALL).response.error_code == E.NONE


def test_changed_subscriptions_apply_at_once_to_a_client_that_returns() -> None:
    client = ready()
    client.push(1, SMALL)
    client.telemetry.instances.disconnected(client.identity.id)
    client.telemetry.subscriptions.match_anew()
    assert client.get(2).response.error_code == E.NONE
    assert client.push(3, SMALL).response.error_code == E.NONE


def test_an_instance_that_terminated_does_not_return_to_life() -> None:
    client = ready()
    client.push(1, SMALL, terminating=True)
    client.telemetry.instances.disconnected(client.identity.id)
    assert client.push(2, SMALL, terminating=True).response.error_code == E.INVALID_REQUEST
    client.telemetry.instances.disconnected(client.identity.id)
    assert client.push(63, SMALL).response.error_code == E.NONE


@pytest.mark.parametrize("metrics", [None, b"", memoryview(b"")])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_an_empty_push_is_valid_with_any_codec(metrics: Any, codec: int) -> None:
    client = ready()
    outcome = client.push(1, metrics, compression_type=codec, terminating=True)
    assert outcome.response.error_code == E.NONE
    assert (outcome.problem, outcome.wire_bytes, outcome.inflated_bytes) == (None, 0, 0)
    assert outcome.push is not None
    assert (outcome.push.payload.data, outcome.push.payload.terminating) == (b"", True)
    assert client.push(20).response.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_push_that_inflates_to_nothing_is_empty(codec: int) -> None:
    outcome = ready().push(1, COMPRESSED[codec](b""), compression_type=codec)
    assert outcome.response.error_code == E.NONE
    assert outcome.push is not None
    assert outcome.push.payload.data == b""
    assert outcome.wire_bytes > 0
    assert outcome.inflated_bytes == 0


def test_a_lone_xerial_header_is_an_empty_push() -> None:
    header = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert ready().push(1, header, compression_type=2).response.error_code == E.NONE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_limits_on_size_are_exact(codec: int) -> None:
    compressed = COMPRESSED[codec](SMALL)
    limits = {"max_bytes": max(1024, len(compressed)), "max_inflated_bytes": len(SMALL)}
    outcome = ready(**limits).push(1, compressed, compression_type=codec)
    assert outcome.response.error_code == E.NONE
    assert (outcome.wire_bytes, outcome.inflated_bytes) == (len(compressed), len(SMALL))
    limits["max_inflated_bytes"] -= 1
    outcome = ready(**limits).push(1, compressed, compression_type=codec)
    assert outcome.response.error_code == E.TELEMETRY_TOO_LARGE
    assert outcome.problem == f"inflates to more than {len(SMALL) - 1} bytes"
    assert outcome.wire_bytes == len(compressed)


def test_the_limit_on_the_wire() -> None:
    client = ready(max_bytes=len(SMALL) - 1)
    outcome = client.push(1, SMALL)
    assert outcome.response.error_code == E.TELEMETRY_TOO_LARGE
    assert outcome.problem == "1448 bytes are more than 1447 allowed"
    assert client.get(2).response.error_code == E.THROTTLING_QUOTA_EXCEEDED


def test_a_bomb_is_refused_as_too_large() -> None:
    outcome = ready().push(1, rle_frame(10 << 30), compression_type=4)
    assert outcome.response.error_code == E.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize(
    ("metrics", "codec", "problem"),
    [
        (b"garbage", 0, "the bytes are no OTLP MetricsData"),
        (b"\x7a\x02hi", 0, "there is no metrics message in the bytes"),
        (b"garbage", 1, "the bytes are no gzip data"),
        (gzip.compress(SMALL, mtime=0)[:-1], 1, "the gzip data is truncated"),
        (b"garbage", 2, "the bytes are no snappy data"),
        (b"garbage", 3, "the bytes are no lz4 data"),
        (b"garbage", 4, "the bytes are no zstd data"),
        (SMALL, 4, "the bytes are no zstd data"),
        (gzip.compress(b"secret", mtime=0), 1, "the bytes are no OTLP MetricsData"),
    ],
)
def test_an_invalid_record_is_described_without_its_bytes(metrics: bytes, codec: int, problem: str) -> None:
    outcome = ready().push(1, metrics, compression_type=codec)
    assert outcome.response.error_code == E.INVALID_RECORD
    assert outcome.problem == problem
    assert outcome.push is None


@pytest.mark.parametrize("codec", [5, 127, -1, -128])
def test_after_an_unknown_codec_the_client_may_get_at_once(codec: int) -> None:
    client = ready()
    outcome = client.push(1, SMALL, compression_type=codec)
    assert outcome.response.error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert outcome.problem == f"compression type {codec} is unknown"
    assert client.get(2).response.error_code == E.NONE
    assert client.push(3, SMALL).response.error_code == E.NONE


# -- the life of a client
# -----------------------------------------------------------------------------


def test_a_client_from_start_to_end() -> None:
    client = ready()
    assert client.push(7, SMALL).response.error_code == E.NONE
    assert client.push(17, SMALL).response.error_code == E.NONE
    assert client.push(26.9, SMALL).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert client.push(27, SMALL).response.error_code == E.NONE
    last = client.push(28, SMALL, terminating=True)
    assert last.response.error_code == E.NONE
    assert last.push is not None
    assert last.push.payload.terminating
    assert client.push(38, SMALL).response.error_code == E.INVALID_REQUEST
    instance = client.telemetry.instances.find(client.id)
    assert instance is not None
    assert (instance.pushes_accepted, instance.terminating) == (4, True)


def test_no_client_is_silenced_while_the_subscriptions_are_not_known() -> None:
    """A get asks for no metrics and to come back soon, a push waits for the next interval."""
    client = ready()
    telemetry = client.telemetry
    telemetry.subscriptions.known = False
    for now in (1, 2):  # no get is too early
        response = client.get(now).response
        assert (response.error_code, response.requested_metrics) == (E.NONE, ())
        assert 5_000 <= response.push_interval_ms <= 10_000
    pushed = client.push(10, SMALL)
    assert (pushed.response.error_code, pushed.push) == (E.THROTTLING_QUOTA_EXCEEDED, None)
    assert client.push(11, SMALL, terminating=True).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    # Its subscription holds as soon as it is known, and it is still a living client.
    telemetry.subscriptions.known = True
    assert client.get(12).response.requested_metrics != ()
    assert client.push(13, SMALL).response.error_code == E.NONE


def test_changed_subscriptions_reach_a_client_with_its_next_request() -> None:
    client = ready()
    assert client.push(5, SMALL).response.error_code == E.NONE
    old = client.telemetry.subscriptions.active
    client.telemetry.subscriptions.replace(SubscriptionSet([subscription(interval_ms=1000)]), NOW)
    assert client.telemetry.subscriptions.active is not old
    assert client.push(6, SMALL).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    outcome = client.get(6)
    assert outcome.response.error_code == E.NONE
    assert outcome.response.push_interval_ms == 1000
    assert not outcome.created
    assert client.push(6.5, SMALL).response.error_code == E.NONE
    assert client.push(7.5, SMALL).response.error_code == E.NONE


def test_subscriptions_of_other_clients_do_not_affect_a_client() -> None:
    client = ready()
    assert client.push(5, SMALL).response.error_code == E.NONE
    both = SubscriptionSet([subscription(), subscription("else", ("a.",), 100, {"client_id": "else"})])
    client.telemetry.subscriptions.replace(both, NOW)
    assert client.push(15, SMALL).response.error_code == E.NONE
    assert client.push(16, SMALL).response.error_code == E.THROTTLING_QUOTA_EXCEEDED


def test_a_late_software_name_is_matched_at_the_next_get() -> None:
    client = Client(
        subscription(match={"client_software_name": "apache-kafka-java"}),
        connected=connection(client_software_name="unknown"),
    )
    assert client.get(0).response.requested_metrics == ()
    client.identity = replace(client.identity, client_software_name="apache-kafka-java")
    # A push with the old id is still valid, because the client cannot know another.
    assert client.push(1, SMALL).response.error_code == E.NONE
    assert client.get(2).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    response = client.get(301).response
    assert response.requested_metrics == ("",)
    assert response.push_interval_ms == 10_000
    assert client.push(302, SMALL).response.error_code == E.NONE
    assert client.get(312).response.error_code == E.NONE


def test_instances_are_bounded_and_forgotten() -> None:
    client = Client(subscription(), settings=TelemetrySettings(max_instances=3))
    for _ in range(5):
        client.id = ZERO_UUID
        client.get(0)
    instances = client.telemetry.instances
    assert len(instances) == 3
    assert (instances.statistics.created, instances.statistics.evicted) == (5, 2)
    assert client.telemetry.instances.forget_expired(59, 10) == 0
    assert client.telemetry.instances.forget_expired(60, 10) == 3
    # It comes back and gets a new instance.
    assert client.get(61).created


def test_settings_may_change_while_clients_are_there() -> None:
    client = ready()
    client.push(1, SMALL)
    settings = TelemetrySettings(compression=("gzip",), max_bytes=1024, max_inflated_bytes=1024)
    client.telemetry.replace_rules(Rules(settings))
    assert client.get(2).response.accepted_compression_types == (1,)
    assert client.push(3, SMALL).response.error_code == E.TELEMETRY_TOO_LARGE


def test_a_codec_that_was_not_offered_is_refused_unless_the_push_is_empty() -> None:
    client = ready(compression=("gzip",))
    refused = client.push(1, COMPRESSED[4](SMALL), compression_type=4)
    assert refused.response.error_code == E.UNSUPPORTED_COMPRESSION_TYPE
    assert refused.push is None
    # It gets its subscription at once, and pushes with an offered codec.
    assert client.get(1).response.accepted_compression_types == (1,)
    assert client.push(2, COMPRESSED[1](SMALL), compression_type=1).push is not None
    for now, codec in enumerate((0, 4), start=2):
        outcome = client.push(now * 10.0, b"", compression_type=codec)
        assert outcome.response.error_code == E.NONE, "empty is empty"
    assert client.push(50, SMALL, compression_type=0).push is not None


def test_no_codec_at_all_may_be_offered() -> None:
    client = ready(compression=())
    assert client.push(1, SMALL, compression_type=0).push is not None
    refused = client.push(11, COMPRESSED[1](SMALL), compression_type=1)
    assert refused.response.error_code == E.UNSUPPORTED_COMPRESSION_TYPE


# -- subscriptions' temporality, and selectors that a push reveals
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "temporality", "delta"),
    [
        (True, None, True),
        (False, None, False),
        (True, Temporality.CUMULATIVE, False),
        (False, Temporality.DELTA, True),
    ],
)
def test_a_subscription_decides_the_temporality(
    default: bool, temporality: Temporality | None, delta: bool
) -> None:
    one = Subscription("s", ("*",), temporality=temporality)
    client = Client(one, settings=TelemetrySettings(delta_temporality=default))
    assert client.get(0).response.delta_temporality is delta


def test_a_new_temporality_reaches_a_client_that_pushes() -> None:
    client = ready()
    telemetry = client.telemetry
    changed = Subscription("all", ("*",), 10_000, temporality=Temporality.CUMULATIVE)
    telemetry.subscriptions.replace(SubscriptionSet([changed]), NOW)
    assert client.push(10).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.get(10).response.delta_temporality is False
    assert client.push(20).response.error_code == E.NONE
    # The receiver's default is the client's too.
    telemetry.subscriptions.replace(SubscriptionSet([subscription()]), NOW)
    assert client.push(30).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.get(30).response.delta_temporality is True
    telemetry.replace_rules(Rules(TelemetrySettings(delta_temporality=False)))
    assert client.push(40).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.get(40).response.delta_temporality is False


def of_group(group_id: str) -> bytes:
    return push(resource_metrics(gauge("org.apache.kafka.consumer.a", 1.0), group_id=group_id))


def test_a_push_reveals_what_selectors_match() -> None:
    client = Client(
        subscription("all", ("org.apache.kafka.consumer.",), 10_000),
        subscription("billing", ("more.",), 5_000, {"group_id": "bill.*"}),
    )
    assert client.get(0).response.requested_metrics == ("org.apache.kafka.consumer.",)
    assert client.push(10, of_group("billing")).response.error_code == E.NONE
    # The next push is refused, so that the client asks at once.
    assert client.push(20, of_group("billing")).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    answer = client.get(20).response
    assert (answer.error_code, answer.requested_metrics) == (
        E.NONE,
        ("more.", "org.apache.kafka.consumer."),
    )
    assert answer.push_interval_ms == 5_000
    assert client.push(25, of_group("billing")).response.error_code == E.NONE
    # An empty push reveals nothing new.
    assert client.push(30).response.error_code == E.NONE
    assert client.push(35, of_group("other")).response.error_code == E.NONE
    # The interval is ten seconds again.
    assert client.push(40).response.error_code == E.THROTTLING_QUOTA_EXCEEDED
    assert client.push(45).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.get(45).response.requested_metrics == ("org.apache.kafka.consumer.",)


def test_nothing_is_matched_anew_where_no_selector_reads_what_a_push_reveals() -> None:
    client = ready()
    instance = client.telemetry.instances.find(client.id)
    assert instance is not None
    matched = instance.matched
    assert client.push(10, of_group("billing")).response.error_code == E.NONE
    assert instance.revealed.group_id == "billing"
    assert instance.matched is matched


# -- metrics that nobody asked for
# ---------------------------------------------------------------

LONG = "org.apache.kafka.producer." + "x" * 200
MIXED = push(
    resource_metrics(
        gauge("org.apache.kafka.producer.a", 1.0),
        gauge("org.apache.kafka.consumer.b", 2.0),
        gauge("", 3.0),
        gauge(LONG, 4.0),
    )
)


def names(outcome: PushOutcome) -> list[str]:
    assert outcome.push is not None
    return [metric.name for metric in all_metrics(outcome.push.payload.metrics)]


@pytest.mark.parametrize("second", [b"", push(resource_metrics(gauge("c", 1.0), group_id="g"))])
def test_metrics_that_no_subscription_asks_for_are_dropped_and_counted(second: bytes) -> None:
    client = Client(subscription("one", ("org.apache.kafka.producer.",)))
    client.get(0)
    outcome = client.push(10, MIXED + second)
    assert outcome.response.error_code == E.NONE
    assert names(outcome) == ["org.apache.kafka.producer.a", LONG]
    assert outcome.metrics.series == 2
    assert outcome.metrics.steps.unsubscribed_points == 2 + bool(second)


def test_without_a_subscription_all_metrics_are_dropped() -> None:
    client = Client()
    client.get(0)
    outcome = client.push(60, MIXED)
    assert (outcome.response.error_code, names(outcome)) == (E.NONE, [])
    assert outcome.metrics.steps.unsubscribed_points == 4


@pytest.mark.parametrize("subscriptions", [(), (subscription("one", ("org.apache.kafka.producer.",)),)])
def test_a_setting_keeps_what_nobody_asked_for(subscriptions: tuple[Subscription, ...]) -> None:
    client = Client(*subscriptions, settings=TelemetrySettings(unsubscribed_metrics="keep"))
    client.get(0)
    outcome = client.push(60, MIXED)
    assert (len(names(outcome)), outcome.metrics.steps.unsubscribed_points) == (4, 0)


def test_a_push_with_too_many_scopes_to_look_into_is_too_large() -> None:
    client = Client(subscription("one", ("org.apache.kafka.producer.",)))
    client.get(0)
    scoped = push(*[resource_metrics(gauge("a", 1.0), group_id=str(n)) for n in range(2)]) * 5_000
    assert client.push(10, scoped).response.error_code == E.TELEMETRY_TOO_LARGE


# -- no plugin
# ---------------------------------------------------------------


def test_an_unsolicited_push_without_a_plugin_is_not_supported() -> None:
    client = Client(subscription(match={"client_id": "another"}))
    assert client.get(0).response.requested_metrics == ()
    client.telemetry.subscriptions.set_has_plugins(False)
    outcome = client.push(400, MIXED)
    assert (outcome.response.error_code, outcome.push) == (E.UNSUPPORTED_VERSION, None)
    assert outcome.problem == "no plugin takes metrics: plugins is empty"


def test_a_client_that_was_asked_is_not_silenced_when_the_last_plugin_goes() -> None:
    client = ready()
    client.telemetry.subscriptions.set_has_plugins(False)
    assert client.push(10, MIXED).response.error_code == E.UNKNOWN_SUBSCRIPTION_ID
    assert client.get(10).response.requested_metrics == ()
    client.telemetry.subscriptions.set_has_plugins(True)
    assert client.get(70).response.requested_metrics == ("",)
    assert client.push(80, MIXED).response.error_code == E.NONE
