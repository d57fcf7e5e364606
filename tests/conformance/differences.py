"""Where the receiver's answers differ from Kafka's, on purpose, and why.

Owns the one table of them. The suite asserts each line of it exactly, on both sides;
``docs/protocol.md`` has the same names and sentences, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.conformance.payloads import BOMBS

#: By number of a case's line: what Kafka answers, and what the receiver answers.
Lines = Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which the receiver differs.

    Attributes:
        name: What it is about.
        kafka: What Kafka 4.4 does.
        receiver: What the receiver does.
        reason: Why.
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
    """What the receiver answers from a line on, and stays open, where Kafka closes."""
    return {number: ("closed", text) for number, text in enumerate((*receiver, "open"), first)}


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        name="A software name or version that is not valid",
        kafka="Answers INVALID_REQUEST and leaves the connection open.",
        receiver=(
            "Answers INVALID_REQUEST and closes the connection; nothing behind the request has an effect."
        ),
        reason=(
            "KIP-511 has such a connection end, though by the client. The answer is for whoever debugs the "
            "client; a connection whose software is not known can't be matched by subscriptions."
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
        kafka="Offers version 0 alone, and closes a connection that sends version 1.",
        receiver=(
            "Offers and answers version 1 too, whose request header has the client instance id; one that is "
            "not the connection's is answered INVALID_REQUEST."
        ),
        reason="KIP-1313 has it so; Kafka 4.4 is older than that.",
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
            "Takes the id in its header for tagged fields, and closes the connection unless it happens to be "
            "some."
        ),
        receiver="Reads no further than the client id, and answers UNSUPPORTED_VERSION.",
        reason=(
            "The client id keeps its old form in request header v3 so that such a client can fall back "
            "(KIP-1313), and one whose connection is closed cannot know why."
        ),
        lines={
            f"ApiVersions v6 with the client instance id {'ff' * 16} in its header": _only_here(
                1, "UNSUPPORTED_VERSION, 1 keys (18: 0-5)"
            )
        },
    ),
    Difference(
        name="More than 64 tagged fields in a request header",
        kafka="Ignores them, however many.",
        receiver=(
            "Closes a connection whose first request has them, or with `kip1313.translate_all` any request; "
            "ApiVersions, SASL and telemetry requests may have them."
        ),
        reason=(
            "There are none so far, and each costs time where a header arrives byte by byte: it has to be "
            "gone through again."
        ),
        lines={"a first request with 65 tagged fields in its header": {1: ("an answer", "closed")}},
    ),
    Difference(
        name="More than 32 requests for the receiver in one go",
        kafka="Answers them all.",
        receiver=(
            "Closes the connection at the 33rd ApiVersions, telemetry or login request without an answer; "
            "what came before is answered."
        ),
        reason=(
            "All clients wait while they are read, and a client of good will has one or two outstanding. "
            "From 16 on the connection is not read from, so it takes one write to get so far."
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
        kafka='Asks for `["*"]` where a subscription asks for all metrics.',
        receiver='Asks for `[""]`.',
        reason=(
            "KIP-714 says that an empty string means all, and franz-go and Dekaf take only that: `*` matches "
            "nothing with them. Java and librdkafka take both."
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
        kafka="Lists them in an order of its own.",
        receiver="Lists them sorted.",
        reason="The subscription id is computed from them, and every sidecar has to compute the same one.",
        lines={
            "get after the subscription changed": {2: _PREFIX_ORDER},
            "get twice after the subscription changed": {2: _PREFIX_ORDER},
            "push with the old subscription id after a change": {3: _PREFIX_ORDER},
        },
    ),
    Difference(
        name="The push after an UNKNOWN_SUBSCRIPTION_ID",
        kafka=(
            "Lets the client get its subscriptions at once, but does not count that get, so a push before "
            "the interval is over is answered THROTTLING_QUOTA_EXCEEDED."
        ),
        receiver="Counts the get like any other: the first push after it is taken.",
        reason=(
            "KIP-714 has clients jitter the first push after a get from half an interval on, so with Kafka "
            "half of them lose it after every change of a subscription."
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
        name="A terminating push that is refused",
        kafka="Takes the instance for terminated: every later push of it is answered INVALID_REQUEST.",
        receiver="Takes the instance for terminated by an accepted push only.",
        reason=(
            "INVALID_REQUEST turns telemetry off in the client. One that gets its subscriptions again, as "
            "UNKNOWN_SUBSCRIPTION_ID tells it to, may repeat its last push and is heard."
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
        name="Metrics that inflate to too much",
        kafka="Answers INVALID_RECORD.",
        receiver="Answers TELEMETRY_TOO_LARGE, and inflates no further than `telemetry.max_inflated_bytes`.",
        reason=(
            "That is what is wrong with them, and INVALID_RECORD turns telemetry off in the client, while "
            "after TELEMETRY_TOO_LARGE it goes on with its next interval."
        ),
        lines={
            f"push of a bomb in {codec}": {2: ("INVALID_RECORD", "TELEMETRY_TOO_LARGE")} for codec in BOMBS
        },
    ),
    Difference(
        name="Metrics that are no OTLP",
        kafka="Hands them to the plugin unseen, and answers NONE.",
        receiver="Answers INVALID_RECORD to what is not OTLP MetricsData with a metric in it.",
        reason="What can't be read can't be labelled, and must not reach a collector that others use too.",
        lines={
            "push of uncompressed garbage": {2: ("NONE", "INVALID_RECORD")},
            "push of a message without metrics": {2: ("NONE", "INVALID_RECORD")},
        },
    ),
    Difference(
        name="Metrics that are null",
        kafka="Closes the connection, as the schema does not allow it.",
        receiver="Takes null for empty: NONE, and nothing is exported.",
        reason="librdkafka before 2.10.1 sends null when no metric matched, and would reconnect for ever.",
        lines={
            "push of null metrics": {2: ("closed", "NONE"), 3: ("closed", "open")},
            "push of null metrics with a codec": {2: ("closed", "NONE"), 3: ("closed", "open")},
        },
    ),
    Difference(
        name="After SaslHandshake v0",
        kafka="Answers ApiVersions and telemetry as ever.",
        receiver=(
            "Passes everything on as it is until the connection ends: keys 71 and 72 are not offered, and "
            "telemetry is the broker's business."
        ),
        reason=(
            "What follows are bare tokens without a request header, and a token may look like any request; "
            "where they end, only the mechanism knows. Clients since Kafka 1.0 use version 1, which has no "
            "bare tokens."
        ),
        lines={
            "bare tokens, then ApiVersions": {3: (_ALL_KEYS, "NONE, 77 keys (18: 0-5)")},
            "bare tokens, then get": {3: (_GET, _GET_OF_NOTHING)},
            "SaslHandshake v0 without authentication, then get": {2: (_GET, _GET_OF_NOTHING)},
        },
    ),
)


def listed_differences(case: str) -> dict[int, tuple[str, str]]:
    """The lines of a case that differ, from all of the table."""
    return {
        number: texts
        for difference in DIFFERENCES
        for number, texts in difference.lines.get(case, {}).items()
    }
