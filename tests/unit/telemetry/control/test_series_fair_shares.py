"""Fair shares: a hostile peer cannot use the share of others in instances and series."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from receiver.settings.limits import LimitsSettings, PeerLimitsSettings, PrincipalLimitsSettings
from receiver.settings.model import TelemetrySettings
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.instance import MAX_PER_CONNECTION
from receiver.wire.uuid import Uuid
from tests.unit.telemetry.parts import Client, connection, payload, subscription

_NO_LIMITS = LimitsSettings(
    source_address=PeerLimitsSettings(
        new_instances_per_minute=None,
        core_ms_per_second=None,
        accepted_bytes_per_minute=None,
        telemetry_requests_per_second=None,
    ),
    principal=PrincipalLimitsSettings(),
)
SMALL = payload("ck-producer-star-01")


def uuid(number: int) -> Uuid:
    return Uuid((number + 2).to_bytes(16, "big"))


def core(**settings: object) -> Client:
    return Client(
        subscription(interval_ms=300_000),
        settings=TelemetrySettings.model_validate(settings),
        limits=_NO_LIMITS,
    )


def use(client: Client, over: ClientIdentity, instance: Uuid, now: float) -> int:
    """Get and push as an instance; return how many points did not fit."""
    client.identity, client.id = over, instance
    client.get(now)
    outcome = client.push(now, SMALL)
    return outcome.metrics.overflowed


def test_a_closed_connection_forgets_all_its_instances() -> None:
    client = core(series={"max_total": 100})
    hostile = connection(source_address="10.6.6.6")
    for number in range(50):
        use(client, hostile, uuid(number), 0.0)
    assert len(client.telemetry.instances) == 50
    assert client.telemetry.series.series == 100
    client.telemetry.instances.disconnected(hostile.id)
    assert len(client.telemetry.instances) == 0
    assert client.telemetry.series.series == 0
    assert client.telemetry.instances.statistics.disconnected == 50


def test_an_instance_used_by_another_connection_outlives_the_first() -> None:
    client = core()
    first, second = connection(id="c1"), connection(id="c2")
    use(client, first, uuid(1), 0.0)
    use(client, first, uuid(2), 0.0)
    use(client, second, uuid(1), 1.0)
    client.telemetry.instances.disconnected(first.id)
    assert [instance.id for instance in client.telemetry.instances] == [uuid(1)]
    client.telemetry.instances.disconnected(second.id)
    assert len(client.telemetry.instances) == 0


def test_a_connection_has_a_bounded_number_of_instances() -> None:
    client = core()
    hostile = connection()
    for number in range(3 * MAX_PER_CONNECTION):
        use(client, hostile, uuid(number), 0.0)
    assert len(client.telemetry.instances) == MAX_PER_CONNECTION
    assert client.telemetry.instances.statistics.evicted == 2 * MAX_PER_CONNECTION


def test_at_the_bound_the_largest_site_loses_an_instance() -> None:
    client = core(max_instances=100)
    innocent = connection(source_address="10.0.0.7")
    for number in range(10):
        use(client, innocent, uuid(number), 0.0)
    for number in range(1_000):
        hostile = connection(id=f"h{number}", source_address=f"2001:db8:6:{number:x}::1")
        use(client, hostile, uuid(1_000 + number), 1.0)
    kept = {instance.id for instance in client.telemetry.instances}
    assert len(kept) == 100
    assert {uuid(number) for number in range(10)} <= kept


def test_dead_instances_of_one_address_do_not_starve_a_new_client() -> None:
    client = core(series={"max_total": 200})
    for number in range(100):
        use(client, connection(id=f"h{number}", source_address="10.6.6.6"), uuid(number), 0.0)
    assert client.telemetry.series.series == 200
    # The hostile connections stay open, and their instances never push again.
    assert use(client, connection(source_address="10.0.0.7"), uuid(1_000), 1.0) == 0


@given(
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.booleans()), max_size=60),
    most=st.integers(8, 20),
)
def test_a_site_within_its_share_loses_no_instance(steps: list[tuple[int, int, bool]], most: int) -> None:
    client = core(max_instances=most)
    innocent = connection(id="innocent", source_address="10.0.0.7")
    hostile = [connection(id=f"h{block}", source_address=f"10.6.6.{block}") for block in range(3)]
    mine = {uuid(1_000 + number) for number in range(most // 4)}
    for instance in mine:
        use(client, innocent, instance, 0.0)
    for number, block, disconnects in steps:
        if disconnects:
            client.telemetry.instances.disconnected(hostile[block % 3].id)
        else:
            client.identity, client.id = hostile[block % 3], uuid(number)
            client.get(1.0)
        assert len(client.telemetry.instances) <= most
        assert mine <= {instance.id for instance in client.telemetry.instances}
