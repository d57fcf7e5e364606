"""The table of intended differences between the receiver's answers and Kafka's.

The suite asserts each line exactly, for both peers. ``docs/protocol.md`` has the same names and
sentences, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.conformance.payloads import BOMBS

#: Kafka's and the receiver's answer, by line number of a case.
Lines = Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which the receiver differs.

    Attributes:
        name: The heading in the protocol notes.
        kafka: What Kafka 4.4 does.
        receiver: What the receiver does.
        reason: The reason for the difference.
        lines: By case, the lines that differ.
    """

    name: str
    kafka: str
    receiver: str
    reason: str
    lines: Mapping[str, Lines]


_SLOW: Final = "zstd/lz4/gzip/snappy, 60000 ms, 1048576 bytes, delta"
_GET: Final = f"NONE, the same id, subscription #1, {_SLOW}, metrics ['org.apache.kafka.producer.']"
_GET_OF_NOTHING: Final = (
    "NONE, the same id, subscription #1, zstd/lz4/gzip/snappy, 300000 ms, 1048576 bytes, delta, metrics []"
)
_GET_V1: Final = _GET.replace("the same id", "no id")
_ALL_KEYS: Final = "NONE, 79 keys (18: 0-5, 71: its own, 72: its own)"
_METADATA: Final = "Metadata of kafka-telemetry-testQQ, 1 broker"
_BAD_WORDS: Final = ("", " ", "with space", "under_score", "ümlaut", "new\nline", "ends-in-newline\n")


def _two_prefixes(*metrics: str) -> str:
    names = [f"org.apache.kafka.{metric}." for metric in metrics]
    return f"NONE, the same id, subscription #2, {_SLOW}, metrics {names}"


_PREFIX_ORDER: Final = (_two_prefixes("producer", "admin"), _two_prefixes("admin", "producer"))


def _only_here(first: int, *receiver: str) -> Lines:
    """Return lines from ``first`` on that the receiver answers and where Kafka closes."""
    return {number: ("closed", text) for number, text in enumerate((*receiver, "open"), first)}


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        name="A software name or version that is not valid",
        kafka="Answers INVALID_REQUEST and leaves the connection open.",
        receiver=("Answers INVALID_REQUEST and closes the connection. Requests after it have no effect."),
        reason=(
            "By KIP-511 such a connection ends, although the client ends it. Subscriptions can't match a "
            "connection without known software. The answer helps to debug the client."
        ),
        lines={
            **{
                f"software {what} {word!r}": {2: ("open", "closed")}
                for what in ("name", "version")
                for word in _BAD_WORDS
            },
            "ApiVersions again with a bad name": {3: ("open", "closed")},
            "ApiVersions with a bad name in the middle of a pipeline": {
                3: (_METADATA, "closed"),
                4: (_ALL_KEYS, "closed"),
                5: ("open", "nothing"),
            },
            "ApiVersions with a bad name before authentication": {2: (_ALL_KEYS, "closed")},
        },
    ),
    Difference(
        name="GetTelemetrySubscriptions and PushTelemetry version 1",
        kafka="Offers version 0 only, and closes a connection that sends version 1.",
        receiver=(
            "Also offers and answers version 1, whose request header has the client instance id. An id that "
            "is not the connection's is answered INVALID_REQUEST."
        ),
        reason="KIP-1313 defines it; Kafka 4.4 is older than KIP-1313.",
        lines={
            "get of version 1": _only_here(1, _GET_V1),
            "get and push of version 1": _only_here(1, _GET_V1, "NONE"),
            "get of version 1 after ApiVersions": _only_here(2, _GET_V1),
            "get of version 1 with unknown tagged fields": _only_here(1, _GET_V1),
            "get of version 1 after version 0": _only_here(2, "THROTTLING_QUOTA_EXCEEDED"),
            "get of version 1 after login": _only_here(3, _GET_V1),
            "get of version 1 with the zero id": _only_here(1, "INVALID_REQUEST"),
            "get of version 1 with the zero id before authentication": _only_here(1, "INVALID_REQUEST"),
            "get of version 1 with another id": _only_here(1, _GET_V1, "INVALID_REQUEST"),
            "get of version 0 after version 1": _only_here(1, _GET_V1, "INVALID_REQUEST"),
            "push of version 0 after version 1": _only_here(1, _GET_V1, "INVALID_REQUEST"),
            "get of version 1 after the handshake, before authentication": {
                2: ("closed", "ILLEGAL_SASL_STATE")
            },
        },
    ),
    Difference(
        name="An unknown version of ApiVersions with a client instance id",
        kafka=(
            "Reads the id in the header as tagged fields, and closes the connection unless the id parses as "
            "tagged fields."
        ),
        receiver="Reads the header up to the client id, and answers UNSUPPORTED_VERSION.",
        reason=(
            "The client id keeps its old form in request header v3 so that a newer client can fall back "
            "(KIP-1313). A client whose connection is closed does not know the reason."
        ),
        lines={
            f"ApiVersions v6 with the client instance id {'ff' * 16} in its header": _only_here(
                1, "UNSUPPORTED_VERSION, 1 keys (18: 0-5)"
            )
        },
    ),
    Difference(
        name="More than 64 tagged fields in a request header",
        kafka="Ignores any number of them.",
        receiver=(
            "Closes a connection whose first request has them, or any request with `kip1313.translate_all`. "
            "ApiVersions, SASL and telemetry requests may have them."
        ),
        reason=(
            "Kafka defines no tagged field so far, and each costs time if a header arrives byte by byte, "
            "because the receiver parses it again."
        ),
        lines={"a first request with 65 tagged fields in its header": {1: ("an answer", "closed")}},
    ),
    Difference(
        name="More than 32 requests for the receiver in one go",
        kafka="Answers them all.",
        receiver=(
            "Closes the connection at the 33rd unanswered ApiVersions, telemetry or login request. It "
            "answers the requests before."
        ),
        reason=(
            "All clients wait while the receiver reads them, and a correct client has one or two "
            "outstanding. From 16 on it stops reading, so only one write with all of them reaches 33."
        ),
        lines={
            "a pipeline of 33 telemetry requests": {
                33: (_GET.replace("#1", "#33"), "closed"),
                34: ("open", "closed"),
            }
        },
    ),
    Difference(
        name="All metrics",
        kafka='Asks for `["*"]` if a subscription asks for all metrics.',
        receiver='Asks for `[""]`.',
        reason=(
            "In KIP-714 an empty string means all metrics. franz-go and Dekaf accept only that: with `*` "
            "they push nothing. Java and librdkafka accept both."
        ),
        lines={
            "get where everything is subscribed": {
                1: (
                    f"NONE, the same id, subscription #1, {_SLOW}, metrics ['*']",
                    f"NONE, the same id, subscription #1, {_SLOW}, metrics ['']",
                )
            }
        },
    ),
    Difference(
        name="The order of metric prefixes",
        kafka="Lists them in no defined order.",
        receiver="Lists them sorted.",
        reason="The subscription id is computed from them, and every sidecar must compute the same id.",
        lines={
            "get after the subscription changed": {2: _PREFIX_ORDER},
            "get twice after the subscription changed": {2: _PREFIX_ORDER},
            "push with the old subscription id after a change": {3: _PREFIX_ORDER},
        },
    ),
    Difference(
        name="The push after an UNKNOWN_SUBSCRIPTION_ID",
        kafka=(
            "Lets the client get its subscriptions at once but does not count that get. A push before the "
            "end of the interval is answered THROTTLING_QUOTA_EXCEEDED."
        ),
        receiver="Counts the get like any other, and accepts the first push after it.",
        reason=(
            "By KIP-714 clients send the first push after a get at half an interval or later. With Kafka "
            "half of the clients lose that push after every change of a subscription."
        ),
        lines={
            "push of an instance that never asked, then get": {3: ("THROTTLING_QUOTA_EXCEEDED", "NONE")},
            "push with the right subscription id after a wrong one and get": {
                4: ("THROTTLING_QUOTA_EXCEEDED", "NONE")
            },
            "push with the old subscription id after a change": {4: ("THROTTLING_QUOTA_EXCEEDED", "NONE")},
        },
    ),
    Difference(
        name="An instance that connects again",
        kafka="Forgets an instance when its connection ends, and with it the interval.",
        receiver="Keeps the interval, and whether the instance has terminated, for max(60 s, 3 intervals).",
        reason=(
            "KIP-714 keeps both for that time. A client that connects again for each push would have no "
            "interval. It gets its subscriptions at once if it has not pushed since the last get."
        ),
        lines={
            "push after a disconnect and get": {
                3: (_GET, "THROTTLING_QUOTA_EXCEEDED"),
                4: ("NONE", "THROTTLING_QUOTA_EXCEEDED"),
            },
            "terminating push, then a disconnect": {
                3: (_GET, "THROTTLING_QUOTA_EXCEEDED"),
                4: ("NONE", "INVALID_REQUEST"),
            },
        },
    ),
    Difference(
        name="A terminating push that is refused",
        kafka="Marks the instance as terminated, and answers INVALID_REQUEST to its later pushes.",
        receiver="Marks the instance as terminated only if it accepts the push.",
        reason=(
            "INVALID_REQUEST turns telemetry off in the client. A client that gets its subscriptions again "
            "after UNKNOWN_SUBSCRIPTION_ID can repeat its last push."
        ),
        lines={
            "push after a terminating push with a wrong subscription id": {4: ("INVALID_REQUEST", "NONE")},
            "push after a terminating push with an unknown codec": {4: ("INVALID_REQUEST", "NONE")},
            "push after a terminating push with corrupt metrics": {3: ("INVALID_REQUEST", "NONE")},
            "push after a terminating push that is too large": {3: ("INVALID_REQUEST", "NONE")},
            "terminating push after a terminating push with a wrong subscription id": {
                3: ("INVALID_REQUEST", "NONE")
            },
            "terminating push of an instance that never asked": {
                2: ("INVALID_REQUEST", "THROTTLING_QUOTA_EXCEEDED")
            },
        },
    ),
    Difference(
        name="Metrics that are too large when inflated",
        kafka="Answers INVALID_RECORD.",
        receiver="Answers TELEMETRY_TOO_LARGE, and inflates up to `telemetry.max_inflated_bytes` only.",
        reason=(
            "INVALID_RECORD turns telemetry off in the client. After TELEMETRY_TOO_LARGE, which is the real "
            "error, it continues with the next interval."
        ),
        lines={
            f"push of a bomb in {codec}": {2: ("INVALID_RECORD", "TELEMETRY_TOO_LARGE")} for codec in BOMBS
        },
    ),
    Difference(
        name="Metrics that are not OTLP",
        kafka="Gives them to the plugin unchecked, and answers NONE.",
        receiver="Answers INVALID_RECORD unless the push is OTLP MetricsData with a Resource in it.",
        reason="The receiver can't label other bytes, and they must not reach a collector that others share.",
        lines={
            "push of uncompressed garbage": {2: ("NONE", "INVALID_RECORD")},
            "push of a message without metrics": {2: ("NONE", "INVALID_RECORD")},
        },
    ),
    Difference(
        name="Metrics that are null",
        kafka="Closes the connection, because the schema does not allow null.",
        receiver="Treats null as empty: it answers NONE, and plugins get a push without metrics.",
        reason="librdkafka before 2.10.1 sends null if no metric matches, and would reconnect without end.",
        lines={
            "push of null metrics": {2: ("closed", "NONE"), 3: ("closed", "open")},
            "push of null metrics with a codec": {2: ("closed", "NONE"), 3: ("closed", "open")},
        },
    ),
    Difference(
        name="After SaslHandshake v0",
        kafka="Answers ApiVersions and telemetry as usual.",
        receiver=(
            "Forwards everything unchanged until the connection ends. It does not offer keys 71 and 72, and "
            "the broker answers telemetry requests."
        ),
        reason=(
            "Bare tokens without a request header follow, and a token may look like any request. Only the "
            "mechanism knows where they end. Clients since Kafka 1.0 use version 1, which has no bare tokens."
        ),
        lines={
            "bare tokens, then ApiVersions": {3: (_ALL_KEYS, "NONE, 77 keys (18: 0-5)")},
            "bare tokens, then get": {3: (_GET, _GET_OF_NOTHING)},
            "SaslHandshake v0 without authentication, then get": {2: (_GET, _GET_OF_NOTHING)},
        },
    ),
)


def listed_differences(case: str) -> dict[int, tuple[str, str]]:
    """Return the lines of a case that differ, from the whole table."""
    return {
        number: texts
        for difference in DIFFERENCES
        for number, texts in difference.lines.get(case, {}).items()
    }
