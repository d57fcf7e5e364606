"""Subscriptions as CLIENT_METRICS resources with records beside them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from receiver.store.kafka_format import COMPLETE, NOBODY, Entry, join, split, split_complete
from receiver.telemetry.subscription import Subscription

NOBODY_MATCHES = f"client_instance_id={NOBODY}"


def subscription(match: Mapping[str, str] | None = None, *metrics: str, name: str = "a") -> Subscription:
    return Subscription(name=name, metrics=metrics or ("x.", "y."), interval_ms=1000, match=match or {})


@pytest.mark.parametrize(
    ("match", "configs", "beside"),
    [
        ({}, "", {}),
        ({"client_id": "a.*", "client_software_name": "b"}, "client_id=a.*,client_software_name=b", {}),
        # Kafka splits a list at commas and a pattern at its equals sign.
        (
            {"client_id": "a{1,2}", "client_source_port": "1"},
            f"client_source_port=1,{NOBODY_MATCHES}",
            {"client_id": "a{1,2}"},
        ),
        ({"client_id": "a=b"}, NOBODY_MATCHES, {"client_id": "a=b"}),
        ({"client_id": " a"}, NOBODY_MATCHES, {"client_id": " a"}),
        ({"client_id": ""}, NOBODY_MATCHES, {"client_id": ""}),
        # A broker's own plugin would ask every client.
        ({"principal": "User:a"}, NOBODY_MATCHES, {"principal": "User:a"}),
        (
            {"principal": "User:a", "client_instance_id": "b.*"},
            NOBODY_MATCHES,
            {"principal": "User:a", "client_instance_id": "b.*"},
        ),
    ],
)
def test_what_kafka_cannot_say_stands_beside(
    match: dict[str, str], configs: str, beside: dict[str, str]
) -> None:
    whole = subscription(match)
    entry = split(whole)
    assert entry.configs == {"metrics": "x.,y.", "interval.ms": "1000", "match": configs}
    assert entry.beside == ({"match": beside} if beside else {})
    assert join("a", entry) == whole


def test_patterns_that_the_brokers_refuse_can_all_stand_beside() -> None:
    whole = subscription({"client_id": "(?P<name>x)", "client_source_port": "1"})
    entry = split(whole, match_beside=True)
    assert entry.configs == {"metrics": "x.,y.", "interval.ms": "1000", "match": NOBODY_MATCHES}
    assert join("a", entry) == whole


@pytest.mark.parametrize("match", [{}, {"client_id": "a"}, {"client_instance_id": "b.*"}])
def test_a_disabled_subscription_matches_no_client_of_kafkas(match: dict[str, str]) -> None:
    whole = replace(subscription(match), enabled=False)
    entry = split(whole)
    assert entry.configs is not None
    assert entry.configs["match"].endswith(NOBODY_MATCHES)
    assert "b.*" not in entry.configs["match"]
    assert join("a", entry) == whole


def test_without_its_record_a_hidden_subscription_matches_no_client() -> None:
    """The record's topic may be lost. Then the subscription must not ask everybody."""
    read = join("a", Entry(configs=split(subscription({"principal": "User:a"})).configs))
    assert isinstance(read, Subscription)
    assert read.match == {"client_instance_id": NOBODY}


@pytest.mark.parametrize("metrics", [("*",), ("",), ("x.", "*")])
def test_every_metric_is_an_asterisk(metrics: tuple[str, ...]) -> None:
    entry = split(Subscription(name="a", metrics=metrics))
    assert entry.configs is not None
    assert entry.configs["metrics"] == "*"
    assert join("a", entry) == Subscription(name="a", metrics=("*",))


def test_no_metrics_are_none() -> None:
    none = Subscription(name="a", metrics=())
    assert join("a", split(none)) == none


def test_a_cluster_without_resources_has_records_alone() -> None:
    whole = subscription({"client_id": "a,b"}, name="é")
    entry = split_complete(whole)
    assert entry.configs is None
    assert entry.exists
    assert join("é", entry) == whole


def test_what_kafkas_tools_write_is_read() -> None:
    assert join("a", Entry(configs={"metrics": " x. , y. ,"})) == Subscription(name="a", metrics=("x.", "y."))
    assert join("a", Entry(configs={"interval.ms": "100"})) == Subscription(
        name="a", metrics=(), interval_ms=100
    )
    written = {"metrics": "*", "match": "client_id = b , client_source_address=1[.]2"}
    assert join("a", Entry(configs=written)) == Subscription(
        name="a", metrics=("*",), match={"client_id": "b", "client_source_address": "1[.]2"}
    )


def test_settings_beside_survive_an_edit_with_kafkas_tools() -> None:
    entry = split(subscription({"client_id": "a,b", "client_software_name": "java"}))
    edited = Entry(
        configs={"metrics": "z.", "interval.ms": "500", "match": "client_software_name=go"},
        beside=entry.beside,
    )
    assert join("a", edited) == Subscription(
        name="a",
        metrics=("z.",),
        interval_ms=500,
        match={"client_id": "a,b", "client_software_name": "go"},
    )
    # The resource wins, because the tools write it.
    edited = Entry(configs={"match": "client_id=c"}, beside=entry.beside)
    assert join("a", edited) == Subscription(name="a", metrics=(), match={"client_id": "c"})


def test_a_record_alone_is_no_subscription() -> None:
    assert not Entry(beside={"match": {}}).exists
    assert Entry(configs={"metrics": "*"}).exists
    assert Entry(beside={"metrics": [], COMPLETE: True}).exists


@pytest.mark.parametrize(
    ("entry", "mistake"),
    [
        (Entry(configs={"metrics": "a b"}), "metrics[0]: 'a b' is no prefix of a metric name; "),
        (Entry(configs={"interval.ms": "x"}), "interval_ms: 'x' is not a whole number; "),
        (Entry(configs={"match": "client_id=(?=a)"}), "match.client_id: '(?=a)' is no regular expression: "),
        (Entry(configs={}, beside={"of a newer version": 1}), "of a newer version: 1 is an unknown field; "),
        (Entry(configs={}, beside={"match": 5}), "match: the record has no mapping; "),
    ],
)
def test_what_cannot_be_used_here_is_named(entry: Entry, mistake: str) -> None:
    found = join("a", entry)
    assert isinstance(found, list)
    assert [str(item)[: len(mistake)] for item in found] == [mistake]
