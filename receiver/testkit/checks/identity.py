"""Judges who a client says it is: software, ids, cluster and node."""

from __future__ import annotations

from receiver.amounts import count_text, share_text
from receiver.testkit.checks.check import Verdict, failed, passed, untried
from receiver.testkit.recording import KIT, ClientRecording, Get, Push
from receiver.wire.error_codes import ErrorCode
from receiver.wire.k18_api_versions import is_valid_client_information
from receiver.wire.uuid import RESERVED_UUIDS, ZERO_UUID, uuid_to_text

#: Seconds after which a client should have asked for its subscriptions.
_ASKS_WITHIN_S = 10.0


def asks(client: ClientRecording) -> Verdict:
    """KIP-714, "Client behavior": a client asks when the broker offers telemetry."""
    if client.gets:
        first = client.gets[0]
        return passed(f"asked {first.at - client.connections[0].opened:.1f} s after it connected")
    lasted = client.lasted_until - client.connections[0].opened
    if lasted < _ASKS_WITHIN_S:
        return untried(f"the client was there for {lasted:.1f} s, which is too short")
    return failed(f"in {lasted:.0f} s it sent no GetTelemetrySubscriptions request")


def asks_first(client: ClientRecording) -> Verdict:
    """KIP-714, "Client behavior": the subscription comes before the first push."""
    if not client.telemetry:
        return untried("it sent no telemetry request")
    first = client.telemetry[0]
    if isinstance(first, Push):
        return failed("its first telemetry request was a push")
    return passed("asked before it pushed")


def one_handshake(client: ClientRecording) -> Verdict:
    """KIP-714: the handshake without an id is done once."""
    if not client.gets:
        return untried("it did not ask for subscriptions")
    # A client that got no answer has no id yet.
    without = [get for get in client.gets if get.instance_id in RESERVED_UUIDS]
    answered = [get for get in without if get.answered is not None and get.error == 0]
    repeated = [get for get in without if answered and get.at > answered[0].at]
    if repeated:
        count = count_text(len(repeated), "request")
        return failed(f"{count} without a client instance id after it had been given one")
    return passed(f"{share_text(len(without), len(client.gets), 'request')} had no id")


def keeps_id(client: ClientRecording) -> Verdict:
    """KIP-714: every later request has the id of the first answer."""
    given = _given(client)
    if given is None:
        return untried("it was given no client instance id")
    later = [request for request in client.after(given) if not _is_new(request)]
    if not later:
        return untried("no request came after the first answer")
    others = [request for request in later if request.instance_id != given.assigned]
    if others:
        other = uuid_to_text(others[0].instance_id)
        return failed(f"{count_text(len(others), 'request')} had another id, such as {other}")
    return passed(f"{count_text(len(later), 'request')} had the id {uuid_to_text(given.assigned)}")


def keeps_id_over_reconnects(client: ClientRecording) -> Verdict:
    """KIP-714: the id lives as long as the client, not as the connection."""
    given = _given(client)
    lost = [
        c for c in client.connections if c.closed_by == KIT and any(isinstance(r, Push) for r in c.requests)
    ]
    if given is None or not lost:
        return untried("no connection with a push was lost; use a script with disconnect: answered")
    when = min(connection.closed or 0.0 for connection in lost)
    later = [request for request in client.telemetry if request.at > when]
    if not later:
        return untried("no telemetry request came after the lost connection")
    changed = [request for request in later if request.instance_id != given.assigned]
    if changed:
        share = share_text(len(changed), len(later), "request")
        return failed(f"after the lost connection {share} had another id or none")
    return passed(f"{count_text(len(later), 'request')} after the lost connection had the same id")


def keeps_id_over_brokers(client: ClientRecording) -> Verdict:
    """KIP-714: the id is sent to any broker."""
    given = _given(client)
    nodes = {request.connection.node_id for request in client.telemetry}
    if given is None or len(nodes) < 2:
        missing = (
            "give --bind twice, for two brokers" if client.brokers < 2 else "only one broker got telemetry"
        )
        return untried(missing)
    others = [r for r in client.telemetry if r.connection.node_id != given.connection.node_id]
    changed = [request for request in others if request.instance_id != given.assigned]
    if changed:
        share = share_text(len(changed), len(others), "request")
        return failed(f"{share} to another broker had another id or none")
    return passed(f"{count_text(len(others), 'request')} to another broker had the same id")


def pushes_its_subscription(client: ClientRecording) -> Verdict:
    """KIP-714: a push names the subscription of the last answer."""
    if not client.pushes:
        return untried("it pushed nothing")
    told = [push for push in client.pushes if push.subscription is not None]
    wrong = [push for push in told if push.subscription and push.subscription_id != push.subscription.id]
    if wrong:
        share = share_text(len(wrong), len(told), "push", "pushes")
        return failed(f"{share} named another subscription than the last answer")
    return passed(count_text(len(told), "push", "pushes"))


def well_formed(client: ClientRecording) -> Verdict:
    """Kafka's protocol guide: a broker closes the connection otherwise."""
    problems = [connection.problem for connection in client.connections if connection.problem]
    if problems:
        return failed(f"{count_text(len(problems), 'request')} could not be read: {problems[0]}")
    return passed(count_text(len(client.requests), "request"))


def no_null_metrics(client: ClientRecording) -> Verdict:
    """KIP-714, PushTelemetryRequest: Metrics is not nullable."""
    if not client.pushes:
        return untried("it pushed nothing")
    null = sum(push.size < 0 for push in client.pushes)
    if null:
        share = share_text(null, len(client.pushes), "push", "pushes")
        return failed(f"{share} had null metrics; Kafka closes the connection then")
    return passed(count_text(len(client.pushes), "push", "pushes"))


def names_itself(client: ClientRecording) -> Verdict:
    """KIP-511: a client says its software's name and version."""
    named = [hello for hello in client.hellos if hello.is_named]
    versions = sorted({h.api_version for h in client.hellos if h.error != ErrorCode.UNSUPPORTED_VERSION})
    if not versions:
        return untried("it sent no ApiVersions request that the kit could read")
    if not named:
        return failed(
            f"only ApiVersions versions {', '.join(map(str, versions))}, which have no software name"
        )
    return passed(client.software)


def valid_names(client: ClientRecording) -> Verdict:
    """KIP-511: the broker refuses a name or version that does not match the pattern."""
    named = [hello for hello in client.hellos if hello.is_named]
    if not named:
        return untried("it sent no ApiVersions request of version 3 or later")
    for hello in named:
        if not is_valid_client_information(hello.software_name, hello.software_version):
            return failed(f"name {hello.software_name!r}, version {hello.software_version!r}")
    return passed(f"name {named[-1].software_name}, version {named[-1].software_version}")


def cluster_and_node(client: ClientRecording) -> Verdict:
    """KIP-1242: cluster id and node id, both or none, and those of the broker."""
    asked = [hello for hello in client.hellos if hello.is_named and hello.api_version >= 5]
    if not asked:
        return untried("it sent no ApiVersions request of version 5")
    for hello in asked:
        if (hello.cluster_id is None) != (hello.broker_id == -1):
            cluster = "no cluster id" if hello.cluster_id is None else f"cluster id {hello.cluster_id!r}"
            return failed(f"{cluster} with node id {hello.broker_id}")
        if hello.error == ErrorCode.REBOOTSTRAP_REQUIRED:
            return failed(f"node id {hello.broker_id} on a connection to broker {hello.connection.node_id}")
    known = sum(hello.cluster_id is not None for hello in asked)
    return passed(f"{share_text(known, len(asked), 'request')} named cluster and node")


def header_ids(client: ClientRecording) -> Verdict:
    """KIP-1313: request header v3 has a client instance id that never changes."""
    with_id = [request for request in client.requests if request.header_id is not None]
    if not with_id:
        return untried("it sent no request header of version 3")
    if any(request.header_id == ZERO_UUID for request in with_id):
        return failed("a request header of version 3 had a client instance id of zero")
    ids = {request.header_id for request in with_id}
    if len(ids) > 1:
        return failed(f"{len(ids)} different client instance ids in request headers")
    return passed(f"{count_text(len(with_id), 'request')} with the same id in the header")


def falls_back(client: ClientRecording) -> Verdict:
    """KIP-511: after UNSUPPORTED_VERSION a client asks in another version."""
    refused = [hello for hello in client.hellos if hello.error == ErrorCode.UNSUPPORTED_VERSION]
    if not refused:
        return untried("it sent no ApiVersions version that the kit lacks")
    for hello in refused:
        again = [h for h in client.hellos if h.at > hello.at and h.error != ErrorCode.UNSUPPORTED_VERSION]
        if not again:
            return failed(f"no further request after version {hello.api_version} was refused")
    return passed(f"asked again after version {refused[0].api_version} was refused")


def _given(client: ClientRecording) -> Get | None:
    """Return the request whose answer gave the client its id."""
    return next((get for get in client.gets if get.answered is not None and get.error == 0), None)


def _is_new(request: Get | Push) -> bool:
    """Return whether a request is a handshake without an id."""
    return isinstance(request, Get) and request.instance_id in RESERVED_UUIDS
