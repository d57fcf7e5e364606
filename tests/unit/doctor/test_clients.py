"""Subscriptions and clients: what matches, when a push is due, and why there was none."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.doctor.clients import (
    Fleet,
    client_findings,
    one_client,
    owner_findings,
    protocol_findings,
    subscription_findings,
)
from receiver.doctor.findings import Finding, State


def client(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "client_instance_id": f"instance-{number}",
        "client_id": f"client-{number}",
        "client_software_name": "apache-kafka-java",
        "client_software_version": "4.4.0",
        "source_address": "10.0.0.1",
        "source_port": 4000 + number,
        "push_interval_ms": 60_000,
        "requested_metrics": ["org.apache.kafka."],
        "subscriptions": ["all"],
        "interval_factor": 1,
        "plugin_behind": None,
        "reduced": None,
        "via": "gateway",
        "pushes": 3,
        "last_request_age_s": 20.0,
        "last_push_age_s": 20.0,
        "last_error": "NONE",
        "terminating": False,
        **fields,
    }


def connection(number: int = 1) -> dict[str, Any]:
    return {key: value for key, value in client(number).items() if key.startswith(("client_", "source_"))}


def subscription(name: str = "all", **fields: Any) -> dict[str, Any]:
    return {"name": name, "metrics": ["org.apache.kafka."], "interval_ms": 60_000, "match": {}, **fields}


def unasked(number: int = 1, **fields: Any) -> dict[str, Any]:
    nothing = {"requested_metrics": [], "subscriptions": [], "pushes": 0, "last_push_age_s": None}
    return client(number, push_interval_ms=300_000, **{**nothing, **fields})


def fleet(*clients: dict[str, Any], **fields: Any) -> Fleet:
    return Fleet(**{"clients": clients, "connections": (), "subscriptions": [subscription()], **fields})


def others(findings: list[Finding]) -> list[tuple[str, State]]:
    return [(finding.check, finding.state) for finding in findings if finding.check != "all"]


def test_a_client_that_pushes_is_well() -> None:
    (summary,) = client_findings(fleet(client()))
    assert (summary.state, summary.seen) == (State.OK, "well: 1 of 1 client; pushed: 1")
    (one,) = one_client(fleet(client()), "client-1")
    assert one.state is State.OK
    assert one.seen == (
        "asked by all, 3 pushes, the last 20 s ago; its next telemetry request is due within 70 s"
    )
    assert one_client(fleet(client()), "instance-1") == [one]


def test_clients_of_bridges_are_asked_by_their_brokers() -> None:
    nothing = dict.fromkeys(("push_interval_ms", "requested_metrics", "subscriptions", "last_error"))
    bridged = client(2, via="bridge", state="pushing", **nothing)
    (found,) = subscription_findings(fleet(client(), bridged))
    assert found.seen == "matches 1 of 1 known client, every 60 s"
    (found,) = subscription_findings(fleet(bridged))
    assert found.seen == "no client is known yet, every 60 s"
    assert [finding.state for finding in one_client(fleet(bridged), "client-2")] == [State.OK]
    alone = fleet(subscriptions=(), bridges_alone=True)
    (found,) = subscription_findings(alone)
    assert (found.state, found.seen.partition(":")[0]) == (State.OK, "the brokers ask clients by their own")
    (found,) = client_findings(alone)
    assert (found.state, found.seen) == (State.WARNING, "no client has pushed by a bridge")


def test_a_first_push_that_is_not_due_is_well_and_not_proven() -> None:
    waiting = fleet(client(pushes=0, last_push_age_s=None))
    assert others(client_findings(waiting)) == []
    (one,) = one_client(waiting, "client-1")
    assert one.state is State.UNKNOWN
    assert "has not pushed yet; its next telemetry request is due within 70 s" in one.seen
    assert "wait until then" in one.do


@pytest.mark.parametrize(
    ("fields", "check", "words"),
    [
        ({"last_request_age_s": 101.0}, "late", "silent for 101 s"),
        ({"last_error": "INVALID_RECORD"}, "error", "INVALID_RECORD"),
        ({"interval_factor": 4, "plugin_behind": "otlp"}, "backpressure", "4 times less often"),
        (
            {"reduced": {"to": "standard_metrics", "offence": "too_large", "relaxes_in_s": 9.0}},
            "reduced",
            "too_large",
        ),
        (
            {
                "requested_metrics": [],
                "reduced": {"to": "nothing", "offence": "bytes_per_minute", "relaxes_in_s": 9.0},
            },
            "reduced",
            "asked for nothing, because of bytes_per_minute",
        ),
        ({"requested_metrics": []}, "metrics", "ask for no metrics"),
    ],
)
def test_what_is_wrong_with_a_client(fields: dict[str, Any], check: str, words: str) -> None:
    found = client_findings(fleet(client(**fields)))
    assert others(found) == [(check, State.WARNING)]
    assert words in found[1].seen
    (one,) = one_client(fleet(client(**fields)), "client-1")
    assert (one.check, one.state) == (check, State.FAILED)


def test_a_client_that_has_ended_is_well() -> None:
    assert others(client_findings(fleet(client(terminating=True, last_request_age_s=9999.0)))) == []


def test_a_client_that_no_subscription_matches_names_the_selector() -> None:
    orders = subscription("orders", match={"client_id": "orders-.*", "client_source_port": "4001"})
    unmatched = fleet(unasked(), subscriptions=[orders])
    (_, warned) = client_findings(unmatched)
    assert warned.seen == (
        "no subscription matches it: client_id 'client-1' does not match 'orders-.*'; "
        "its next telemetry request is due within 430 s"
    )
    assert others(one_client(unmatched, "client-1")) == [("match", State.FAILED), ("match", State.WARNING)]
    (none,) = one_client(fleet(unasked(), subscriptions=[]), "client-1")
    assert none.seen.startswith("no subscription matches it; its next")


def test_a_client_that_a_new_subscription_matches_says_when_it_is_asked() -> None:
    new = subscription("new", match={"client_software_name": "apache-.*", "client_source_address": "10.*"})
    (one,) = one_client(fleet(unasked(), subscriptions=[new]), "client-1")
    assert one.state is State.UNKNOWN
    assert one.seen == "will be asked by new: its next telemetry request is due within 430 s"


def test_a_connection_without_a_telemetry_request() -> None:
    silent = fleet(client(1), connections=[connection(1), connection(2), connection(2)])
    (summary, warned) = client_findings(silent)
    assert summary.seen == "well: 1 of 2 clients; pushed: 1"
    assert (warned.check, "enable.metrics.push" in warned.do) == ("asks", True)
    assert others(one_client(silent, "client-2")) == [("asks", State.FAILED)]
    assert others(one_client(silent, "client-3")) == [("known", State.FAILED)]
    assert others(client_findings(fleet())) == [("any", State.WARNING)]


def test_a_client_may_push_through_the_sidecar_of_another_broker() -> None:
    moved = client(1, last_request_age_s=900.0)
    for count, others_named in ((1, "another broker"), (2, "one of 2 other brokers")):
        part = fleet(moved, connections=[connection(2)], brokers_elsewhere=count)
        (summary,) = client_findings(part)
        assert summary.seen == "well: 2 of 2 clients; pushed: 1"
        for client_id, state in (("client-1", State.OK), ("client-2", State.UNKNOWN)):
            (finding,) = one_client(part, client_id)
            assert finding.state is state
            assert f"it may push through the sidecar of {others_named}" in finding.seen


def test_many_clients_and_subscriptions_are_bounded() -> None:
    many = [client(number, last_request_age_s=9999.0) for number in range(500)]
    found = client_findings(fleet(*many, complete=False))
    assert len(found) == 12
    assert found[0].seen.startswith("well: 0 of the first 500 clients")
    assert (found[-1].check, found[-1].seen.startswith("490 more")) == ("more", True)
    assert len(one_client(fleet(*[client(1)] * 500), "client-1")) == 10
    named = [subscription(f"s-{number}", match={"client_id": "x"}) for number in range(500)]
    assert len(subscription_findings(fleet(client(subscriptions=[]), subscriptions=named))) == 11


def test_subscriptions() -> None:
    (none,) = subscription_findings(fleet(client(), subscriptions=[]))
    assert (none.check, none.state) == ("any", State.WARNING)
    (used,) = subscription_findings(fleet(client()))
    assert used.seen == "matches 1 of 1 known client, every 60 s"
    (early,) = subscription_findings(fleet())
    assert (early.state, early.seen) == (State.OK, "no client is known yet, every 60 s")
    (soon,) = subscription_findings(fleet(unasked()))
    assert (soon.state, soon.seen) == (State.OK, "will match clients when they ask again, every 60 s")
    nobody = subscription("nobody", match={"client_id": "x"})
    (warned,) = subscription_findings(fleet(client(subscriptions=[]), subscriptions=[nobody]))
    assert warned.state is State.WARNING
    assert (
        "matches none of 1 known client; for example client_id 'client-1' does not match 'x'" in warned.seen
    )
    typo = subscription("typo", metrics=["producer."])
    (misspelt,) = subscription_findings(fleet(subscriptions=[typo]))
    assert (misspelt.check, "did you mean" in misspelt.seen) == ("prefixes", True)
    asked = client(subscriptions=["typo"])
    (matched,) = subscription_findings(fleet(asked, subscriptions=[typo]))
    assert (matched.check, matched.state) == ("matches", State.OK)
    pushing = fleet(asked, subscriptions=[typo], misspelt={"typo": "no known metric"})
    (told,) = subscription_findings(pushing)
    assert (told.check, told.state, told.seen) == ("prefixes", State.WARNING, "no known metric")


@pytest.mark.parametrize(
    ("match", "seen"),
    [
        ({"client_id!": "client-.*"}, "client_id 'client-1' must not match 'client-.*'"),
        ({"principal": "User:a"}, "principal '' does not match 'User:a'"),
        ({"client_id!": "else", "client_id": "else"}, "client_id 'client-1' does not match 'else'"),
    ],
)
def test_a_negated_selector_is_explained(match: dict[str, str], seen: str) -> None:
    found = subscription_findings(fleet(unasked(), subscriptions=[subscription(match=match)]))
    assert [(item.check, item.state) for item in found] == [("matches", State.WARNING)]
    assert found[0].seen == f"matches none of 1 known client; for example {seen}"


@pytest.mark.parametrize("state", ["disabled", "expired"])
def test_a_subscription_that_does_not_apply_is_no_mistake(state: str) -> None:
    (found,) = subscription_findings(fleet(unasked(), subscriptions=[subscription(state=state)]))
    assert (found.state, found.seen) == (State.OK, f"is {state}, so it applies to no client")
    described = one_client(fleet(unasked(), subscriptions=[subscription(state=state)]), "client-1")
    assert f"the subscription is {state}" in " ".join(item.seen for item in described)


def test_of_a_client_of_a_bridge_only_its_pushes_are_judged() -> None:
    unknown: dict[str, Any] = dict.fromkeys(
        ("requested_metrics", "subscriptions", "last_error", "push_interval_ms")
    )
    bridged = client(via="bridge", state="pushing", **unknown)
    (one,) = one_client(fleet(bridged), "client-1")
    assert (one.state, one.seen) == (State.OK, "3 pushes by the broker's bridge, the last 20 s ago")
    (late,) = one_client(fleet({**bridged, "state": "silent"}), "client-1")
    assert (late.check, late.state) == ("late", State.FAILED)


def test_clients_without_an_owner_and_absent_principals_are_named() -> None:
    owner = {"team": "pay", "contact": "#pay", "absent": ["User:pay"], "absent_topics": ["bills"]}
    well = {**owner, "team": "ops", "absent": [], "absent_topics": None}
    row = {"principal": "User:x"}
    found = fleet(
        client(1, **row, owner=None), client(2, **row, owner="ops"), owners=[owner, well],
        connections=[{**connection(1), **row, "owner": None}, {**connection(3), **row, "owner": None}],
    )  # fmt: skip
    absent, topics, *undeclared = owner_findings(found)
    assert topics.seen == "expects the topics bills, which no metrics of its clients name"
    assert (absent.check, absent.subject) == ("absent", "owner pay")
    assert absent.seen == "expects User:pay, of which nothing is connected"
    assert absent.do.startswith("ask #pay")
    assert [finding.check for finding in undeclared] == ["undeclared"] * 2
    assert [finding.subject.split()[1] for finding in undeclared] == ["client-1", "client-3"]
    assert not owner_findings(fleet(client(1, owner=None)))


def test_clients_that_newer_brokers_would_not_answer() -> None:
    def broken(api: str, needs: int | None) -> dict[str, Any]:
        return {"api": api, "lowest": 0, "highest": 3, "needs": needs, "dropped_in": "4.0"}

    row = {
        "principal": "User:orders",
        "client_id": "old",
        "client_software_name": "sarama",
        "client_software_version": "1.0",
        "owner": "orders",
        "breaks": [broken("Fetch", 4), broken("ControlledShutdown", None)],
    }
    (found,) = protocol_findings(fleet(breaks=[row]))
    assert (found.state, found.check, found.subject) == (
        State.WARNING,
        "old_protocol",
        "client old of User:orders",
    )
    assert found.seen == (
        "uses Fetch 0, and Kafka 4.0 needs 4, ControlledShutdown 0, and Kafka 4.0 no longer has it"
    )
    assert found.do == "ask orders to upgrade sarama 1.0 before the brokers"
    assert protocol_findings(fleet()) == []
