"""Metrics of principals: few series, exact sums, no name that is to be hidden."""

from __future__ import annotations

from prometheus_client.registry import CollectorRegistry

from receiver.traffic.traffic_metrics import MAX_PRINCIPALS, TrafficMetrics
from receiver.traffic.usage_store import Amounts, Key, PrincipalUse, Settlement, UsageStore

DAY_MS = 86_400_000


def values(metrics: TrafficMetrics, name: str) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"kafka_telemetry_{name}"
    }


def test_the_greatest_principals_have_series_and_the_rest_share_one() -> None:
    metrics = TrafficMetrics(str, dict)
    many = {
        Key(f"User:{number}", client_id): Amounts(number, 1, 2, 0)
        for number in range(MAX_PRINCIPALS + 50)
        for client_id in "ab"
    }
    metrics.add(many, {})
    moved = values(metrics, "traffic_bytes_total")
    assert len(moved) == 2 * (MAX_PRINCIPALS + 1)
    assert moved["User:149", "from_clients"] == 2 * 149
    assert ("User:0", "from_clients") not in moved
    assert sum(moved.values()) == sum(amounts.bytes_in + amounts.bytes_out for amounts in many.values())
    metrics.add({Key("User:0", "a"): Amounts(10**9, 0, 0, 0)}, {})
    later = values(metrics, "traffic_bytes_total")
    assert all(later[labels] >= value for labels, value in moved.items())
    assert later["other", "from_clients"] == moved["other", "from_clients"] + 10**9
    assert values(metrics, "traffic_requests_total")[("User:149",)] == 4


def test_owners_have_series_once_there_are_owners() -> None:
    used = {
        Key("User:a", "one"): Amounts(1, 2, 3, 0),
        Key("User:b", "two"): Amounts(10, 20, 30, 0),
        Key("User:c", "three"): Amounts(100, 200, 300, 0),
    }
    without = TrafficMetrics(str, dict)
    without.add(used, {})
    assert values(without, "owner_traffic_bytes_total") == {}
    metrics = TrafficMetrics(str, dict, lambda key: "" if key.client_id == "three" else "orders")
    metrics.add(used, {})
    assert values(metrics, "owner_traffic_bytes_total") == {
        ("orders", "from_clients"): 11,
        ("orders", "to_clients"): 22,
        ("undeclared", "from_clients"): 100,
        ("undeclared", "to_clients"): 200,
    }
    assert values(metrics, "owner_traffic_requests_total") == {("orders",): 33, ("undeclared",): 300}


def test_privacy_rules_hold_for_labels() -> None:
    uses = {"User:ann": PrincipalUse(0, 5_000), "User:ANONYMOUS": PrincipalUse(0, 1_000)}
    hidden = TrafficMetrics(lambda _: None, lambda: uses)
    hidden.add({Key("User:ann", "a"): Amounts(1, 2, 3, 0)}, {"User:ann": 1})
    assert set(values(hidden, "traffic_bytes_total")) == {("other", "from_clients"), ("other", "to_clients")}
    assert values(hidden, "principal_last_used_timestamp_seconds") == {}
    hashed = TrafficMetrics(lambda principal: f"hash of {principal}", lambda: uses)
    assert values(hashed, "principal_last_used_timestamp_seconds") == {("hash of User:ann",): 5.0}


def test_a_network_is_new_once_the_principal_is_known_for_a_week() -> None:
    store = UsageStore(None, days=30, max_rows=100)

    def used(stamp: int, day: int, network: str) -> dict[str, int]:
        settlement = Settlement(stamp, f"2026-11-{day:02}", day * DAY_MS)
        settlement.add(Key("User:ann", "a"), Amounts(1, 1, 1, 1))
        settlement.networks["User:ann"] = {network}
        return store.commit(settlement)

    assert used(1, 1, "10.0.0.0/24") == {}
    assert used(2, 2, "10.0.1.0/24") == {}  # it is being learned
    assert used(3, 9, "10.0.1.0/24") == {}
    assert used(4, 9, "10.0.2.0/24") == {"User:ann": 1}
    assert used(5, 10, "10.0.2.0/24") == {}
    assert store.principals == {"User:ann": PrincipalUse(DAY_MS, 10 * DAY_MS)}
    store.close()
