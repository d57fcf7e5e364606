"""Quirks: rules for clients that need other answers, by software and version.

Owns the built-in rules and how rules change a client's subscription. Every rule has a reason. The
operator's rules come before the built-in ones. For each property, the first matching rule that sets
it applies; only the known-bad metrics of all matching rules add up.

Two quirks need no rule because all clients get the same treatment: librdkafka before 2.10.1 sends
null metrics when nothing matched (null is read as empty), and franz-go and Dekaf do not know ``*``
(the answer is ``[""]``).
"""

from __future__ import annotations

import os.path
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from receiver.patterns import compile_pattern
from receiver.settings.model import QuirkSettings
from receiver.telemetry.compression import CODECS
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.versions import VersionRange, parse_version

_JAVA = "apache-kafka-java"
_FRANZ_GO = "kgo"
_GZIP_FIRST: Final = ("gzip", "lz4", "snappy", "zstd")

# The metrics of librdkafka 2.5, the first version with telemetry (src/rdkafka_telemetry_encode.h).
_LIBRDKAFKA_2_5_PRODUCER = tuple(
    f"org.apache.kafka.producer.{name}"
    for name in (
        "connection.creation.rate",
        "connection.creation.total",
        "node.request.latency.avg",
        "node.request.latency.max",
        "produce.throttle.time.avg",
        "produce.throttle.time.max",
        "record.queue.time.avg",
        "record.queue.time.max",
    )
)
_LIBRDKAFKA_2_5_CONSUMER = tuple(
    f"org.apache.kafka.consumer.{name}"
    for name in (
        "connection.creation.rate",
        "connection.creation.total",
        "node.request.latency.avg",
        "node.request.latency.max",
        "coordinator.assigned.partitions",
    )
)

# Bindings of librdkafka have their own names: confluent-kafka-python's version is
# "2.16.1-rdkafka-2.16.0".
_LIBRDKAFKA = "librdkafka"
_EMBEDDED_LIBRDKAFKA = re.compile(r"rdkafka-(v?\d.*)")
_CONFLUENT_BINDING = "confluent-kafka-"

# Software names and versions in the cache. There are only a few, unless a client invents them.
_CACHE_SIZE = 256


class Quirk(QuirkSettings):
    """A built-in rule: what an operator can set, and more properties."""

    one_prefix: bool = False
    """Whether to request the longest common beginning instead of several prefixes."""
    kinds: tuple[tuple[str, ...], ...] = ()
    """Metric names by kind of client. When the prefixes match no metric of one kind, nothing is
    requested."""
    checks: tuple[str, ...] = ()
    """The checks of the test kit that find it, by id."""


#: The rules for known clients.
BUILT_IN_QUIRKS: Final = (
    Quirk(
        client_software_name=_LIBRDKAFKA,
        client_software_version=">=2.5.0,<=2.5.2",
        reason="aborts the application when no requested prefix matches one of its metrics "
        "(librdkafka #4833); producers and consumers look alike, so the prefixes must match both",
        kinds=(_LIBRDKAFKA_2_5_PRODUCER, _LIBRDKAFKA_2_5_CONSUMER),
        checks=("TK-039",),
    ),
    Quirk(
        client_software_name=_LIBRDKAFKA,
        client_software_version=">=2.5.0,<2.10.1",
        reason="reads past the end of every requested prefix but the last, so these match nothing "
        "(librdkafka #5105), and sends a metric once for each prefix that matches it (#5104)",
        one_prefix=True,
        checks=("TK-063", "TK-064"),
    ),
    Quirk(
        client_software_name=_LIBRDKAFKA,
        client_software_version=">=2.5.0",
        reason="multiplies the interval by up to 1,500 in 32 bits: over 1,431,655 ms it overflows, and the "
        "client gets its subscriptions 2,000 times a second",
        max_interval_ms=1_431_000,
        checks=("TK-028",),
    ),
    Quirk(
        client_software_name=_JAVA,
        client_software_version=">=3.7.0,<3.9.2",
        reason="its network thread dies when the library of the first offered codec is not on its class path "
        "(KAFKA-19506 and the fixes before it); Java itself has gzip",
        compression=_GZIP_FIRST,
        checks=("TK-024",),
    ),
    Quirk(
        client_software_name=_JAVA,
        client_software_version=">=4.0.0,<4.0.1",
        reason="as Java clients before 3.9.2",
        compression=_GZIP_FIRST,
        checks=("TK-024",),
    ),
    Quirk(
        client_software_name=_JAVA,
        client_software_version=r"(?:7\.[789]|8\.0)\.\d+-c(?:cs|e)",
        reason="Confluent's builds of Kafka 3.7 to 4.0: as Java clients before 3.9.2",
        compression=_GZIP_FIRST,
        checks=("TK-024",),
    ),
    Quirk(
        client_software_name=_FRANZ_GO,
        client_software_version="<1.21.4",
        reason="its own rates and averages are constant or wrong (franz-go's release notes of 1.21.4)",
        bad_metrics=(r"org\.apache\.kafka\..*\.(?:rate|avg)",),
        checks=("TK-081", "TK-082"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """The combined rules for one software name and version.

    Attributes as of :class:`Quirk`.
    """

    compression: tuple[int, ...]  # the codecs to offer, by number, in order of preference
    metrics: tuple[str, ...] | None = None
    one_prefix: bool = False
    kinds: tuple[tuple[str, ...], ...] = ()
    max_interval_ms: int | None = None
    bad_metrics: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # of the matching rules, for the REST API

    def interval_ms(self, wanted: int) -> int:
        """Return the push interval to request instead of the wanted one, in milliseconds."""
        return wanted if self.max_interval_ms is None else min(wanted, self.max_interval_ms)

    def requested(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the prefixes to request instead of those of the subscriptions, sorted."""
        if self.metrics is not None:
            prefixes = tuple(sorted(common_prefixes(prefixes, self.metrics)))
        if self.one_prefix and len(prefixes) > 1:
            prefixes = (os.path.commonprefix(prefixes),)  # noqa: RUF071 # names are compared by character
        for names in self.kinds:
            if not any(name.startswith(prefixes) for name in names):
                return ()
        return prefixes


class Quirks:
    """All rules: the operator's, then the built-in ones.

    Args:
        settings: The operator's rules, ``telemetry.quirks``.
        compression: The codecs to offer when no rule sets any.

    Raises:
        InvalidValueError: A pattern or version range is invalid; the error names its field.
    """

    def __init__(self, settings: Sequence[QuirkSettings] = (), *, compression: Sequence[str]) -> None:
        self._compression = compression
        self._rules = [_Rule(quirk, f"telemetry.quirks[{index}]") for index, quirk in enumerate(settings)]
        self._rules += [_Rule(quirk, f"built-in rule {i}") for i, quirk in enumerate(BUILT_IN_QUIRKS)]
        self._known: OrderedDict[tuple[str, str], Treatment] = OrderedDict()

    def treatment(self, name: str, version: str) -> Treatment:
        """Say how to treat clients of a software name and version (KIP-511)."""
        treatment = self._known.get((name, version))
        if treatment is None:
            treatment = self._known[name, version] = self._decide(name, version)
            if len(self._known) > _CACHE_SIZE:
                self._known.popitem(last=False)
        return treatment

    def _decide(self, name: str, version: str) -> Treatment:
        identities = software_identities(name, version)
        quirks = [rule.quirk for rule in self._rules if rule.applies(identities)]
        built_in = [quirk for quirk in quirks if isinstance(quirk, Quirk)]
        codecs = next((q.compression for q in quirks if q.compression is not None), self._compression)
        return Treatment(
            compression=tuple(CODECS[codec] for codec in codecs),
            metrics=next((q.metrics for q in quirks if q.metrics is not None), None),
            one_prefix=any(q.one_prefix for q in built_in),
            kinds=next((q.kinds for q in built_in if q.kinds), ()),
            max_interval_ms=next((q.max_interval_ms for q in quirks if q.max_interval_ms is not None), None),
            bad_metrics=tuple(dict.fromkeys(pattern for q in quirks for pattern in q.bad_metrics)),
            reasons=tuple(q.reason or "an operator's rule" for q in quirks),
        )


class _Rule:
    """A quirk with its patterns compiled."""

    def __init__(self, quirk: QuirkSettings, field: str) -> None:
        self.quirk = quirk
        self._name = _compiled(f"{field}.client_software_name", quirk.client_software_name)
        self._range: VersionRange | None = None
        self._version: Any = None
        version = quirk.client_software_version
        if VersionRange.looks_like(version):
            try:
                self._range = VersionRange(version)
            except ValueError as error:
                raise InvalidValueError(
                    f"{field}.client_software_version",
                    version,
                    f"is not a version range: {error}",
                    "write bounds with commas, such as >=2.5.0,<=2.5.2",
                ) from None
        else:
            self._version = _compiled(f"{field}.client_software_version", version)

    def applies(self, identities: Iterable[tuple[str, str]]) -> bool:
        return any(
            self._name.fullmatch(name.encode("utf-8", "replace")) is not None
            and (
                parse_version(version) in self._range
                if self._range is not None
                else self._version.fullmatch(version.encode("utf-8", "replace")) is not None
            )
            for name, version in identities
        )


def software_identities(name: str, version: str) -> tuple[tuple[str, str], ...]:
    """Return a client's name and version, and those of its librdkafka, if any."""
    embedded = _EMBEDDED_LIBRDKAFKA.search(version)
    if embedded is not None:
        return (name, version), (_LIBRDKAFKA, embedded[1])
    if name.startswith(_CONFLUENT_BINDING):
        # Confluent's bindings have the version of the librdkafka that they embed.
        return (name, version), (_LIBRDKAFKA, version)
    return ((name, version),)


def _compiled(field: str, pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        problem = f"is no regular expression: {error}"
        raise InvalidValueError(field, pattern, problem, "write it for RE2") from None


def common_prefixes(wanted: Iterable[str], has: Iterable[str]) -> set[str]:
    """Return prefixes that match exactly the names that both sets of prefixes match."""
    has = tuple(has)
    return {
        max(prefix, other, key=len)
        for prefix in wanted
        for other in has
        if prefix.startswith(other) or other.startswith(prefix)
    }
