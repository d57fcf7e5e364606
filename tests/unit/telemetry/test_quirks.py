"""Quirks: the built-in rules and the operator's."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.settings.model import QuirkSettings
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.quirks import BUILT_IN_QUIRKS, Quirks, software_identities

OFFERED = (4, 3, 1, 2)
CODECS_OFFERED = ("zstd", "lz4", "gzip", "snappy")
GZIP_FIRST = (1, 3, 2, 4)
ALL = ("",)
PRODUCER = ("org.apache.kafka.producer.",)
CONSUMER = ("org.apache.kafka.consumer.",)
KAFKA = ("org.apache.kafka.",)

QUIRKS = Quirks(compression=CODECS_OFFERED)


@pytest.mark.parametrize(
    ("name", "version", "compression"),
    [
        ("apache-kafka-java", "4.4.0", OFFERED),
        ("apache-kafka-java", "4.2.0", OFFERED),
        ("apache-kafka-java", "4.1.0", OFFERED),
        ("apache-kafka-java", "4.0.1", OFFERED),
        ("apache-kafka-java", "4.0.0", GZIP_FIRST),
        ("apache-kafka-java", "3.9.2", OFFERED),
        ("apache-kafka-java", "3.9.1", GZIP_FIRST),
        ("apache-kafka-java", "3.7.0", GZIP_FIRST),
        ("apache-kafka-java", "7.9.1-ccs", GZIP_FIRST),
        ("apache-kafka-java", "8.0.0-ce", GZIP_FIRST),
        ("apache-kafka-java", "8.1.0-ccs", OFFERED),
        ("apache-kafka-java", "unknown", OFFERED),
        ("librdkafka", "3.7.0", OFFERED),
        ("unknown", "unknown", OFFERED),
    ],
)
def test_java_versions_that_need_gzip_are_offered_it_first(
    name: str, version: str, compression: tuple[int, ...]
) -> None:
    assert QUIRKS.treatment(name, version).compression == compression


@pytest.mark.parametrize("version", ["2.5.0", "2.5.1", "2.5.2"])
@pytest.mark.parametrize(
    ("wanted", "requested"),
    [
        ((), ()),
        (ALL, ALL),
        (KAFKA, KAFKA),
        # A consumer would abort, and a producer looks the same.
        (PRODUCER, ()),
        (CONSUMER, ()),
        ((*CONSUMER, *PRODUCER), KAFKA),
        (("org.apache.kafka.consumer.connection.", "org.apache.kafka.producer.connection."), KAFKA),
        (("org.apache.kafka.consumer.fetch.manager.", "org.apache.kafka.consumer.poll."), ()),
        (("my.app.",), ()),
        (("my.app.", *KAFKA), ALL),
    ],
)
def test_librdkafka_2_5_is_asked_only_for_its_own_metrics(
    version: str, wanted: tuple[str, ...], requested: tuple[str, ...]
) -> None:
    assert QUIRKS.treatment("librdkafka", version).requested(wanted) == requested


@pytest.mark.parametrize(
    ("name", "version", "one_prefix"),
    [
        ("librdkafka", "2.5.3", True),
        ("librdkafka", "2.10.0", True),
        ("librdkafka", "2.10.1", False),
        ("librdkafka", "2.16.0", False),
        ("confluent-kafka-python", "2.10.0-rdkafka-2.10.0", True),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", False),
        ("my-application", "2.16.1-rdkafka-2.8.0", True),
        ("my-application", "1.0-librdkafka-v2.8.0", True),
        ("confluent-kafka-dotnet", "2.6.1", True),
        ("kgo", "2.6.1", False),
    ],
)
def test_librdkafka_that_misreads_prefixes_is_asked_for_one_prefix(
    name: str, version: str, one_prefix: bool
) -> None:
    requested = QUIRKS.treatment(name, version).requested((*CONSUMER, *PRODUCER))
    assert requested == (KAFKA if one_prefix else (*CONSUMER, *PRODUCER))
    assert QUIRKS.treatment(name, version).requested(PRODUCER) == PRODUCER


def test_rules_apply_to_the_embedded_librdkafka() -> None:
    assert software_identities("confluent-kafka-python", "2.16.1-rdkafka-2.16.0") == (
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0"),
        ("librdkafka", "2.16.0"),
    )
    assert software_identities("apache-kafka-java", "4.4.0") == (("apache-kafka-java", "4.4.0"),)
    assert QUIRKS.treatment("confluent-kafka-python", "9.9.9-rdkafka-2.5.0").requested(PRODUCER) == ()


@pytest.mark.parametrize(
    ("has", "wanted", "requested"),
    [
        ((), ALL, ()),
        (("a.b.", "c."), ALL, ("a.b.", "c.")),
        (("a.b.", "c."), ("a.",), ("a.b.",)),
        (("a.b.", "c."), ("a.b.c.d", "c.", "x."), ("a.b.c.d", "c.")),
        (("a.b.",), ("a.c.",), ()),
        (("",), ("a.",), ("a.",)),
    ],
)
def test_an_operator_may_list_the_metrics_of_a_client(
    has: tuple[str, ...], wanted: tuple[str, ...], requested: tuple[str, ...]
) -> None:
    quirks = Quirks(
        [QuirkSettings(client_software_name="mine", metrics=has, reason="it says so")],
        compression=CODECS_OFFERED,
    )
    treatment = quirks.treatment("mine", "1")
    assert treatment.requested(wanted) == requested
    assert treatment.reasons == ("it says so",)
    assert quirks.treatment("mine-too", "1").requested(wanted) == wanted


def test_operator_rules_come_first_for_each_property() -> None:
    quirks = Quirks(
        [
            QuirkSettings(
                client_software_name=".*java", client_software_version=r"3\.9\..*", compression=("lz4",)
            ),
            QuirkSettings(client_software_name="apache-kafka-java", compression=()),
            QuirkSettings(
                client_software_name="apache.*", client_software_version=">=3,<4", metrics=("org.",)
            ),
        ],
        compression=CODECS_OFFERED,
    )
    assert quirks.treatment("apache-kafka-java", "3.9.1").compression == (3,)
    assert quirks.treatment("apache-kafka-java", "3.8.0").compression == ()
    assert quirks.treatment("apache-kafka-java", "3.8.0").requested(ALL) == ("org.",)
    assert quirks.treatment("apache-kafka-java", "4.4.0").requested(ALL) == ALL
    assert len(quirks.treatment("apache-kafka-java", "3.9.1").reasons) == 4


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (
            {"client_software_name": "(a", "client_software_version": ".*"},
            "telemetry.quirks[1].client_software_name",
        ),
        (
            {"client_software_name": "a", "client_software_version": "(a"},
            "telemetry.quirks[1].client_software_version",
        ),
        (
            {"client_software_name": "a", "client_software_version": ">=x"},
            "telemetry.quirks[1].client_software_version",
        ),
    ],
)
def test_an_invalid_rule_is_named(rule: dict[str, Any], field: str) -> None:
    unchecked = QuirkSettings.model_construct(**rule, compression=None, metrics=None, reason="")
    with pytest.raises(InvalidValueError) as caught:
        Quirks([QuirkSettings(client_software_name="ok"), unchecked], compression=CODECS_OFFERED)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


def test_every_built_in_rule_has_a_reason_and_can_apply() -> None:
    for quirk in BUILT_IN_QUIRKS:
        assert quirk.reason
        assert (
            quirk.compression or quirk.one_prefix or quirk.kinds or quirk.max_interval_ms or quirk.bad_metrics
        )


def test_the_cache_of_treatments_is_bounded() -> None:
    quirks = Quirks(compression=CODECS_OFFERED)
    for number in range(2000):
        assert quirks.treatment(f"made-up-{number}\ud800", "1\ud800").compression == OFFERED
    assert len(quirks._known) <= 256


@pytest.mark.parametrize(
    ("name", "version", "wanted", "given"),
    [
        ("librdkafka", "2.16.0", 3_600_000, 1_431_000),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", 1_431_001, 1_431_000),
        ("librdkafka", "2.16.0", 60_000, 60_000),
        ("apache-kafka-java", "4.4.0", 3_600_000, 3_600_000),
    ],
)
def test_librdkafka_never_gets_an_interval_that_overflows(
    name: str, version: str, wanted: int, given: int
) -> None:
    treatment = Quirks(compression=("zstd",)).treatment(name, version)
    # librdkafka multiplies the interval by up to 1.5, in microseconds, in 32 bits.
    assert treatment.interval_ms(wanted) == given
    assert treatment.max_interval_ms is None or treatment.max_interval_ms * 1500 < 2**31


@pytest.mark.parametrize(
    ("version", "wrong"),
    [("v1.21.3", True), ("v1.19.0", True), ("v1.21.4", False), ("v1.22.2", False), ("unknown", False)],
)
def test_rates_and_averages_of_old_franz_go_are_known_bad(version: str, wrong: bool) -> None:
    treatment = Quirks(compression=CODECS_OFFERED).treatment("kgo", version)
    assert bool(treatment.bad_metrics) is wrong
    assert any("averages" in reason for reason in treatment.reasons) is wrong


def test_known_bad_metrics_of_all_rules_add_up() -> None:
    rules = [
        QuirkSettings(client_software_name="kgo", bad_metrics=("mine", "also")),
        QuirkSettings(client_software_name=".*", bad_metrics=("mine",), reason="why not"),
    ]
    treatment = Quirks(rules, compression=CODECS_OFFERED).treatment("kgo", "v1.22.2")
    assert treatment.bad_metrics == ("mine", "also")
    assert treatment.reasons == ("an operator's rule", "why not")
