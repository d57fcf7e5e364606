"""The steps of cases: requests, pauses and changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.conformance import answers, requests
from tests.conformance.answers import Reader, Seen
from tests.conformance.conversation import Conversation, Request, Step
from tests.conformance.payloads import OTLP
from tests.conformance.peer import INTERVAL_MS
from tests.conformance.talk import Fate

#: Seconds without bytes after which a peer counts as silent.
_SILENCE_S: Final = 0.25

#: How long a broker may take to notice that a client is gone.
_DISCONNECT_S: Final = 0.4

#: Stands for the client id that the case is subscribed under.
OWN: Final = "own"


# -- requests ------------------------------------------------------------------------------------


def request(
    label: str,
    api_key: int,
    version: int,
    body: Callable[[Conversation], bytes],
    reader: Callable[[Conversation], Reader] | None,
    *,
    header_tags: bytes | None,
    correlation_id: int | None = None,
    client_id: str | None = OWN,
    cut: int | None = None,
) -> Request:
    """Return a request from its parts; ``cut`` removes that many bytes from its end."""

    def data(conversation: Conversation, used_correlation_id: int) -> bytes:
        name = conversation.client_id if client_id == OWN else client_id
        whole = requests.header(api_key, version, used_correlation_id, name, header_tags) + body(conversation)
        return whole[: len(whole) - (cut or 0)]

    return Request(label=label, data=data, reader=reader, correlation_id=correlation_id)


def api_versions(
    version: int,
    *,
    name: str | None = "conformance",
    software_version: str | None = "1.0",
    cluster_id: str | None = None,
    node_id: int = -1,
    tags: bytes = requests.NO_TAGS,
    header_tags: bytes = requests.NO_TAGS,
    trailing: bytes = b"",
    correlation_id: int | None = None,
    client_id: str | None = OWN,
    cut: int | None = None,
) -> Request:
    """ApiVersions, as a client of that version sends it."""
    body = requests.api_versions_body(version, name, software_version, cluster_id, node_id, tags) + trailing
    return request(
        f"ApiVersions v{version}",
        requests.API_VERSIONS,
        version,
        lambda _: body,
        lambda _: answers.api_versions(version),
        header_tags=header_tags if version >= 3 else None,
        correlation_id=correlation_id,
        client_id=client_id,
        cut=cut,
    )


def get(
    instance: str = "a",
    *,
    zero: bool = False,
    reserved: bool = False,
    version: int = 0,
    tags: bytes = requests.NO_TAGS,
    header_tags: bytes = requests.NO_TAGS,
    trailing: bytes = b"",
    correlation_id: int | None = None,
    client_id: str | None = OWN,
    cut: int | None = None,
) -> Request:
    """Return a GetTelemetrySubscriptions request of an instance, a ``zero`` or ``reserved`` id.

    In version 1 the id is in the header (KIP-1313).
    """

    def asked_with(conversation: Conversation) -> bytes:
        if zero:
            return requests.ZERO_ID
        return requests.RESERVED_ID if reserved else conversation.reading.instance_id(instance)

    def data(conversation: Conversation) -> bytes:
        return _named(asked_with(conversation), version, header_tags) + tags + trailing

    return request(
        "get",
        requests.GET_TELEMETRY_SUBSCRIPTIONS,
        version,
        data,
        lambda conversation: answers.get(instance, asked_with(conversation), version),
        header_tags=b"",
        correlation_id=correlation_id,
        client_id=client_id,
        cut=cut,
    )


def push(
    instance: str = "a",
    metrics: bytes | None = OTLP,
    *,
    codec: int = 0,
    terminating: bool = False,
    subscription_off_by: int = 0,
    asked_with: bytes | None = None,
    version: int = 0,
    tags: bytes = requests.NO_TAGS,
    header_tags: bytes = requests.NO_TAGS,
    trailing: bytes = b"",
    correlation_id: int | None = None,
    client_id: str | None = OWN,
    cut: int | None = None,
) -> Request:
    """Return a PushTelemetry request with the last answered subscription id.

    In version 1 the client instance id is in the header (KIP-1313).
    """

    def body(conversation: Conversation) -> bytes:
        reading = conversation.reading
        return (
            _named(asked_with or reading.instance_id(instance), version, header_tags)
            + requests.push_body(
                reading.subscription_id(instance) ^ subscription_off_by,
                metrics,
                codec=codec,
                terminating=terminating,
                tags=tags,
            )
            + trailing
        )

    return request(
        "terminating push" if terminating else "push",
        requests.PUSH_TELEMETRY,
        version,
        body,
        lambda _: answers.push,
        header_tags=b"",
        correlation_id=correlation_id,
        client_id=client_id,
        cut=cut,
    )


def _named(instance_id: bytes, version: int, header_tags: bytes) -> bytes:
    """Return the end of a request header with the instance id; from v1 on the header has the id."""
    return instance_id + header_tags if version == 1 else header_tags + instance_id


def metadata(*, correlation_id: int | None = None) -> Request:
    """Metadata v2 for no topics."""
    return request(
        "metadata",
        requests.METADATA,
        2,
        lambda _: requests.metadata_body(),
        lambda _: answers.metadata,
        header_tags=None,
        correlation_id=correlation_id,
    )


def produce(acks: int, *, correlation_id: int | None = None) -> Request:
    """Return a Produce v3 request of one record; ``acks`` 0 has no answer."""
    return request(
        f"produce acks={acks}",
        requests.PRODUCE,
        3,
        lambda conversation: requests.produce_body(conversation.peer.topic, acks, b"value"),
        (lambda _: answers.produce) if acks else None,
        header_tags=None,
        correlation_id=correlation_id,
    )


def any_request(label: str, data: bytes, reader: Reader) -> Request:
    """Return a captured request with its own correlation id."""
    return Request(
        label=label,
        data=lambda _conversation, _id: data,
        reader=lambda _: reader,
        correlation_id=int.from_bytes(data[4:8], "big", signed=True),
    )


# -- other steps ---------------------------------------------------------------------------------


def wait(intervals: float) -> Step:
    """Wait for that many push intervals of the ``fast`` subscription."""
    return Step(run=lambda _: time.sleep(intervals * INTERVAL_MS["fast"] / 1000))


def connect_again() -> Step:
    """Continue on a second connection."""
    return Step(run=Conversation.connect_again)


def reconnect() -> Step:
    """Close the connection, wait until the peer has noticed, and open another."""

    def run(conversation: Conversation) -> None:
        conversation.disconnect()
        time.sleep(_DISCONNECT_S * conversation.patience)
        conversation.connect_again()

    return Step(run=run)


def change_subscription() -> Step:
    """Add a subscription that matches the client, and wait until the peer has it."""
    return Step(run=Conversation.change_subscription)


def send(data: bytes) -> Step:
    """Send bytes and wait for nothing."""
    return Step(run=lambda conversation: conversation.talk.send(data))


def expect_silence() -> Step:
    """Note whether the peer is silent, sends bytes or closes."""

    def run(conversation: Conversation) -> None:
        answer = conversation.talk.receive(_SILENCE_S * conversation.patience)
        seen = Seen(text=str(answer)) if isinstance(answer, Fate) else Seen(text="an answer", raw=answer)
        conversation.note("wait", seen)

    return Step(run=run)


def expect_close() -> Step:
    """Note whether the peer closes the connection."""

    def run(conversation: Conversation) -> None:
        answer = conversation.talk.receive()
        seen = Seen(text=str(answer)) if isinstance(answer, Fate) else Seen(text="an answer", raw=answer)
        conversation.note("wait", seen)

    return Step(run=run)
