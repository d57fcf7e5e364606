"""Subscriptions: validation, matching, the union for a client, the subscription id."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.labels import identity_labels
from receiver.telemetry.selectors import REVEALED_SELECTORS, SELECTORS, Revealed, reveal
from receiver.telemetry.subscription import State, Subscription, SubscriptionSet, subscription_id
from receiver.telemetry.subscription_checks import (
    MAX_LABELS,
    MAX_METRICS,
    MAX_PREFIXES,
    MAX_SUBSCRIPTIONS,
    Temporality,
)
from receiver.wire.uuid import ZERO_UUID, uuid_from_text
from tests.unit.telemetry.otlp_parts import gauge, resource_metrics
from tests.unit.telemetry.parts import INSTANCE, client, subscription

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)

GOOD: dict[str, Any] = {"name": "a", "metrics": ("*",), "interval_ms": 1000, "match": {}}


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"name": ""}, "name", "one character or more"),
        ({"name": None}, "name", "is not a name"),
        ({"name": "n" * 256}, "name", "has 256 characters"),
        ({"name": "a\nb"}, "name", "control character"),
        ({"name": "a\ud800"}, "name", "control character"),
        ({"metrics": "org.apache.kafka."}, "metrics", "is not a list"),
        ({"metrics": 7}, "metrics", "is not a list"),
        ({"metrics": tuple("m" + str(n) for n in range(MAX_METRICS + 1))}, "metrics", "at most 256"),
        ({"metrics": ("ok.", "org.apache.kafka.*")}, "metrics[1]", "write 'org.apache.kafka.'"),
        ({"metrics": ("a b",)}, "metrics[0]", "letters A to Z"),
        ({"metrics": ("a,b",)}, "metrics[0]", "is no prefix"),
        ({"metrics": ("m" * 256,)}, "metrics[0]", "at most 255"),
        ({"metrics": (3,)}, "metrics[0]", "is no prefix"),
        ({"interval_ms": 99}, "interval_ms", "give 100 to 3600000"),
        ({"interval_ms": 3_600_001}, "interval_ms", "give 100 to 3600000"),
        ({"interval_ms": True}, "interval_ms", "whole number"),
        ({"interval_ms": 1000.5}, "interval_ms", "whole number"),
        ({"match": ["client_id=a"]}, "match", "patterns by selector"),
        ({"match": {"client_group": "a"}}, "match.client_group", "use one of client_instance_id, client_id"),
        ({"match": {"client_id": "(a"}}, "match.client_id", "missing )"),
        ({"match": {"client_id": "(?=a)"}}, "match.client_id", "RE2"),
        ({"match": {"client_id": r"(a)\1"}}, "match.client_id", "RE2"),
        ({"match": {"client_id": "((a{100}){100}){100}"}}, "match.client_id", "regular expression"),
        ({"match": {"client_id": r"\pL{900}"}}, "match.client_id", "too large"),
        ({"match": {"client_id": "a" * 1025}}, "match.client_id", "at most 1024"),
        ({"match": {"client_id": "\ud800"}}, "match.client_id", "Unicode"),
        ({"match": {"client_id": 5}}, "match.client_id", "is not a text"),
        ({"match": {"client_id!!": "a"}}, "match.client_id!!", "has an unknown selector"),
        ({"match": {"client_id!": "("}}, "match.client_id!", "missing )"),
        ({"enabled": 1}, "enabled", "give true or false"),
        ({"expires_at": 5}, "expires_at", "is not a time with its zone"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at", "is not a time with its zone"),
        ({"temporality": "both"}, "temporality", "give delta or cumulative"),
        ({"labels": ["a"]}, "labels", "give texts by key"),
        ({"labels": {str(n): "" for n in range(MAX_LABELS + 1)}}, "labels", "give at most 32"),
        ({"labels": {"-a": ""}}, "labels.-a", "has no valid key"),
        ({"labels": {"a": 5}}, "labels.a", "is not a text"),
        ({"labels": {"a": "x" * 257}}, "labels.a", "at most 256"),
        ({"description": None}, "description", "is not a text"),
        ({"description": "a\x07"}, "description", "control characters"),
        ({"description": "x" * 2049}, "description", "at most 2048"),
    ],
)
def test_an_error_names_the_field_and_the_fix(changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        Subscription(**(GOOD | changes))
    error = caught.value
    assert error.field == field
    if field != "labels" and not isinstance(changes.get(field, ()), tuple):
        value = changes[field]
        written = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
        assert written.startswith(error.value.removesuffix("..."))
    assert str(error).startswith(f"{field}: {error.value} {error.problem}; {error.fix}")
    assert says in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "n" * 255},
        {"name": "../ Zugänge (öst)"},
        {"metrics": ()},
        {"metrics": ("",)},
        {"metrics": ["a."]},
        {"metrics": ("m" * 255, "a-b/c_d.0")},
        {"metrics": tuple("m" + str(n) for n in range(MAX_METRICS))},
        {"interval_ms": 100},
        {"interval_ms": 1000.0},
        {"interval_ms": 3_600_000},
        {"match": {"client_id": "a" * 1024}},
        {"labels": {"a" * 63: "x" * 256, "example.org/team-1": ""}},
        {"description": "two\nlines"},
        {"temporality": "cumulative"},
        {"expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
def test_bounds_are_valid(changes: dict[str, Any]) -> None:
    Subscription(**(GOOD | changes))


def test_a_subscription_copies_its_arguments() -> None:
    match, metrics = {"client_id": "a"}, ["x."]
    one = Subscription("a", metrics, 1000, match)  # type: ignore[arg-type]
    match["client_id"] = "b"
    metrics.append("y.")
    assert one.match == {"client_id": "a"}
    assert one.metrics == ("x.",)
    with pytest.raises(TypeError):
        one.match["client_id"] = "c"  # type: ignore[index]
    assert one == Subscription("a", ("x.",), 1000, {"client_id": "a"})
    assert hash(one) == hash(Subscription("a", ("x.",), 1000, {"client_id": "a"}))


@pytest.mark.parametrize(
    ("match", "changes", "matches"),
    [
        ({}, {}, True),
        ({"client_software_name": "apache-kafka-java"}, {}, True),
        ({"client_software_name": "apache-kafka"}, {}, False),
        ({"client_software_name": "kafka-java"}, {}, False),
        ({"client_software_name": "apache.*"}, {}, True),
        ({"client_software_version": r"4\.[34]\..*"}, {}, True),
        ({"client_software_version": r"4\.[34]"}, {}, False),
        ({"client_id": "a|java-producer"}, {}, True),
        ({"client_id": ".*"}, {"client_id": ""}, True),
        ({"client_id": ".+"}, {"client_id": ""}, False),
        ({"client_id": "j.va.*"}, {"client_id": "jäva\ud800"}, True),
        ({"client_instance_id": "7wk08yJMQAOK9PUGl2Zmrg"}, {}, True),
        (
            {"client_instance_id": "7wk08.*"},
            {"client_instance_id": uuid_from_text("8wk08yJMQAOK9PUGl2Zmrg")},
            False,
        ),
        ({"client_source_address": r"10\..*"}, {}, True),
        ({"client_source_address": r"10.0.0"}, {}, False),
        ({"client_source_port": "51234"}, {}, True),
        ({"client_source_port": "5123"}, {}, False),
        ({"client_id": "java-.*", "client_software_name": "librdkafka"}, {}, False),
        ({"client_id": "java-.*", "client_software_name": "apache-kafka-java"}, {}, True),
        ({"client_id!": "java-.*"}, {}, False),
        ({"client_id!": "java"}, {}, True),
        ({"client_id": "java-.*", "client_id!": ".*-producer"}, {}, False),
        ({"client_id": "java-.*", "client_id!": ".*-consumer"}, {}, True),
        ({"principal": "User:alice"}, {"principal": "User:alice"}, True),
        ({"listener": "CLIENT", "security_protocol": "SASL_.*"}, {}, False),
        # What no push has revealed is empty.
        ({"group_id": "billing"}, {}, False),
        ({"group_id!": "billing"}, {}, True),
        ({"group_id": ""}, {}, True),
    ],
)
def test_every_selector_must_match_the_whole_value(
    match: dict[str, str], changes: dict[str, Any], matches: bool
) -> None:
    one = subscription(match=match)
    assert one.matches(client(**changes)) is matches
    assert (SubscriptionSet([one]).assignment(client(**changes)).matched == ("all",)) is matches


def resource_of(attributes: dict[str, str]) -> bytes:
    return resource_metrics(gauge("a", 1.0), **attributes).resource.SerializeToString()


def test_a_push_reveals_texts_of_bounded_length() -> None:
    assert reveal(b"") == Revealed()
    assert reveal(resource_of({"group_id": "g" * 600, "service": "x"})) == Revealed(group_id="g" * 512)
    # librdkafka's name.
    assert reveal(resource_of({"member_id": "m-1"})) == Revealed(group_member_id="m-1")


@pytest.mark.parametrize("selector", SELECTORS)
def test_a_selector_reads_the_value_of_the_label_or_attribute_with_its_name(selector: str) -> None:
    one = client(principal="User:alice", sasl_mechanism="PLAIN")
    attributes = {
        "client_rack": "rack-1",
        "group_id": "billing",
        "group_member_id": "billing-4d2",
        "transactional_id": "tx-7",
        "application_id": "totals",
    }
    assert attributes.keys() == set(REVEALED_SELECTORS)
    revealed = reveal(resource_of(attributes))
    labels = identity_labels(one)._asdict() | attributes
    value = str(labels[selector])
    assert subscription(match={selector: re.escape(value)}).matches(one, revealed)
    assert not subscription(match={selector: re.escape(value) + "x"}).matches(one, revealed)
    assert not subscription(match={f"{selector}!": re.escape(value)}).matches(one, revealed)
    assert subscription(match={f"{selector}!": re.escape(value) + "x"}).matches(one, revealed)
    others = {str(other) for name, other in labels.items() if name != selector}
    assert value not in others, "the identity of this test must tell all labels apart"


@pytest.mark.parametrize(
    ("subscriptions", "prefixes", "interval_ms", "matched"),
    [
        ([], (), 300_000, ()),
        ([subscription("a", (), 5000)], (), 5000, ("a",)),
        ([subscription("a", ("z.", "b.", "z."), 5000)], ("b.", "z."), 5000, ("a",)),
        (
            [subscription("b", ("a.b.",), 5000), subscription("a", ("a.", "c."), 7000)],
            ("a.", "a.b.", "c."),
            5000,
            ("a", "b"),
        ),
        ([subscription("a", ("a.",)), subscription("b", ("*",), 20_000)], ("",), 10_000, ("a", "b")),
        ([subscription("a", ("",))], ("",), 10_000, ("a",)),
        ([subscription("a", ("a.",), 3_600_000)], ("a.",), 3_600_000, ("a",)),
        (
            [subscription("a", ("a.",), 500, {"client_id": "other"}), subscription("b", ("b.",), 700)],
            ("b.",),
            700,
            ("b",),
        ),
    ],
)
def test_a_client_gets_the_union_at_the_smallest_interval(
    subscriptions: list[Subscription],
    prefixes: tuple[str, ...],
    interval_ms: int,
    matched: tuple[str, ...],
) -> None:
    assignment = SubscriptionSet(subscriptions).assignment(client())
    assert (assignment.prefixes, assignment.interval_ms, assignment.matched) == (
        prefixes,
        interval_ms,
        matched,
    )


def test_the_operator_sets_the_default_interval() -> None:
    assert SubscriptionSet().assignment(client(), default_interval_ms=60_000).interval_ms == 60_000


# What a real Kafka 4.4 broker answered; "*" is its form of "every metric".
KAFKA_SAID = [
    ("7wk08yJMQAOK9PUGl2Zmrg", (), 300_000, 68205702),
    ("SMgaE2smSYS4SWPURMk5Mg", ("",), 1000, -303711288),
    ("NCM7qa_WQHqn7EFN64VwCA", ("",), 1000, -451413969),
    ("Lxw_M3RkRXe3WU1FHBC5Sg", ("",), 1000, -1027982094),
    ("VLxBgjzMQiCFAFQy513FSA", ("",), 1000, 950411361),
]


@pytest.mark.parametrize(("instance", "prefixes", "interval_ms", "expected"), KAFKA_SAID)
def test_the_subscription_id_equals_that_of_kafka(
    instance: str, prefixes: tuple[str, ...], interval_ms: int, expected: int
) -> None:
    assert subscription_id(uuid_from_text(instance), prefixes, interval_ms) == expected


# Recorded values: with others, clients of a mixed fleet of sidecars would start over at each
# failover.
@pytest.mark.parametrize(
    ("prefixes", "interval_ms", "expected"),
    [
        (("org.apache.kafka.producer.",), 60_000, 322720440),
        (("org.apache.kafka.consumer.", "org.apache.kafka.producer."), 60_000, -1319663660),
    ],
)
def test_the_subscription_id_is_the_same_everywhere(
    prefixes: tuple[str, ...], interval_ms: int, expected: int
) -> None:
    assert subscription_id(INSTANCE, prefixes, interval_ms) == expected


def test_the_subscription_id_depends_on_all_of_its_parts_and_is_an_int32() -> None:
    ids = {
        subscription_id(instance, prefixes, interval_ms)
        for instance in (INSTANCE, ZERO_UUID)
        for prefixes in ((), ("",), ("a.",), ("a.", "b."), ("a.b.",))
        for interval_ms in (100, 1000, 1001)
    }
    assert len(ids) == 30
    assert all(-(2**31) <= item < 2**31 for item in ids)


def test_the_order_of_subscriptions_changes_nothing() -> None:
    one, two = subscription("a", ("x.", "b."), 5000), subscription("b", ("a.",), 6000)
    first, second = SubscriptionSet([one, two]), SubscriptionSet([two, one])
    assert first.subscriptions == second.subscriptions == (one, two)
    assert first.version == second.version
    assert first.assignment(client()) == second.assignment(client())
    assert len(first) == 2
    assert first.get("b") is two
    assert first.get("c") is None


@pytest.mark.parametrize(
    "changed",
    [
        subscription("b"),
        subscription(metrics=("a.",)),
        subscription(interval_ms=10_001),
        subscription(match={"client_id": "a"}),
    ],
)
def test_different_content_has_a_different_version(changed: Subscription) -> None:
    assert SubscriptionSet([changed]).version != SubscriptionSet([subscription()]).version
    assert SubscriptionSet([subscription()]).version == SubscriptionSet([subscription()]).version


def test_the_version_of_a_set_is_the_same_everywhere() -> None:
    assert SubscriptionSet().version == "71857576257465c7"
    for match in (
        {"client_id": "a", "client_software_name": "b"},
        {"client_software_name": "b", "client_id": "a"},
    ):
        assert SubscriptionSet([subscription(match=match)]).version == "2854918d600bb476"


def test_a_set_is_bounded_and_names_are_unique() -> None:
    with pytest.raises(SubscriptionError, match="'a' is a duplicate"):
        SubscriptionSet([subscription("a"), subscription("b"), subscription("a", ("x.",))])
    many = [subscription(str(n)) for n in range(MAX_SUBSCRIPTIONS + 1)]
    with pytest.raises(SubscriptionError, match="keep at most 1000"):
        SubscriptionSet(many)
    SubscriptionSet(many[1:])
    wide = [subscription(str(n), tuple(f"m{n}.{k}" for k in range(250))) for n in range(4)]
    SubscriptionSet(wide)
    assert MAX_PREFIXES == 1000
    with pytest.raises(SubscriptionError, match="1001 different prefixes"):
        SubscriptionSet([*wide, subscription("more", ("more.",))])


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(SubscriptionError) as caught:
        Subscription("", ("ok.", "a b", "c d"), 5, {"colour": "red", "client_id": "("}, enabled="no")  # type: ignore[arg-type]
    assert [error.field for error in caught.value.all] == [
        "name",
        "metrics[1]",
        "metrics[2]",
        "interval_ms",
        "match.colour",
        "match.client_id",
        "enabled",
    ]


def test_a_subscription_names_the_conditions_that_keep_it_from_matching() -> None:
    one = subscription(match={"client_id": "else", "listener": "CLIENT", "principal!": "User:ANONYMOUS"})
    assert one.mismatches(client()) == ("client_id", "principal!")


def test_a_subscription_ends_by_itself() -> None:
    end = NOW + timedelta(minutes=15, microseconds=1_999)
    one = Subscription("a", ("*",), expires_at=end)
    assert one.expires_at == NOW + timedelta(minutes=15, microseconds=1_000), "to the millisecond"
    assert one.state(NOW) is State.ACTIVE
    assert one.state(end) is State.EXPIRED
    off = Subscription("b", ("*",), enabled=False, expires_at=end)
    assert off.state(NOW) is off.state(end) is State.DISABLED
    both = SubscriptionSet([one, off, subscription("c")])
    assert [s.name for s in both.active(NOW).subscriptions] == ["a", "c"]
    assert [s.name for s in both.active(end).subscriptions] == ["c"]
    assert both.next_end(NOW) == one.expires_at
    assert both.next_end(end) is None
    always = SubscriptionSet([subscription("c")])
    assert always.active(NOW) is always
    assert always.next_end(NOW) is None


@pytest.mark.parametrize(
    ("temporalities", "expected"),
    [
        ((), None),
        ((None, None), None),
        (("delta", None), "delta"),
        (("cumulative", None), "cumulative"),
        (("delta", "cumulative", "delta"), "cumulative"),
    ],
)
def test_cumulative_wins_where_subscriptions_disagree(
    temporalities: tuple[Any, ...], expected: Temporality | None
) -> None:
    subscriptions = [
        Subscription(str(n), ("*",), temporality=temporality) for n, temporality in enumerate(temporalities)
    ]
    assert SubscriptionSet(subscriptions).assignment(client()).temporality == expected


def test_the_subscription_id_tells_temporalities_apart() -> None:
    assert subscription_id(INSTANCE, ("a.",), 1000) != subscription_id(INSTANCE, ("a.",), 1000, delta=False)


def test_many_subscriptions_match_as_each_alone_does() -> None:
    """300 patterns of one selector are several automata, which must agree with each pattern."""
    many = [
        subscription(f"{kind}{n:03}", (f"m{n}.",), match={f"client_id{kind}": f"java-[a-z]{{{n}}}"})
        for kind in ("", "!")
        for n in range(150)
    ]
    many += [subscription(f"x{n:03}", (), match={"client_source_port": f"{n}.*"}) for n in range(100)]
    together = SubscriptionSet(many)
    for client_id in ("java-", "java-producer", "java-" + "x" * 149, "java-" + "x" * 150, "", "else"):
        one = client(client_id=client_id)
        assert together.assignment(one).matched == tuple(sorted(s.name for s in many if s.matches(one)))


def test_clients_with_the_same_subscriptions_share_an_assignment() -> None:
    subscriptions = SubscriptionSet([subscription(match={"client_id": "j.*"})])
    first, second = (subscriptions.assignment(client(client_id=name)) for name in ("j1", "j2"))
    assert first is second


@pytest.mark.parametrize(
    "changed",
    [
        Subscription("all", ("*",), 10_000, enabled=False),
        Subscription("all", ("*",), 10_000, temporality=Temporality.DELTA),
        Subscription("all", ("*",), 10_000, expires_at=NOW),
        Subscription("all", ("*",), 10_000, labels={"a": ""}),
        Subscription("all", ("*",), 10_000, description="x"),
    ],
)
def test_every_field_of_an_operator_changes_the_version(changed: Subscription) -> None:
    assert SubscriptionSet([changed]).version != SubscriptionSet([subscription()]).version
    assert changed != subscription()


def test_who_changed_a_subscription_is_no_part_of_its_content() -> None:
    one = Subscription("all", ("*",), 10_000, changed_by="ed", changed_at=NOW)
    assert one == subscription()
    assert SubscriptionSet([one]).version == SubscriptionSet([subscription()]).version
