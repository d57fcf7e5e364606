"""The hashed encoding is injective, so only equal series have equal ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_streaming.catalogue import plan
from spark_streaming.series_hashes import distinct, register_key
from tests.exploration import examples
from tests.unit.spark_streaming.identities import (
    KEY,
    Field,
    encoded,
    fields_of,
    hash_of,
    series_hash,
    siphash_128,
    storable,
)

#: Few letters and lengths, so that fields look like the ends and beginnings of others.
_TEXTS = st.text('\0\1\2\t|,"\\/=\ufffd…aAeé\u0301', max_size=9) | st.sampled_from(
    ["", "null", "\\N", "a\0", "\0\0\0\0\0\0\0\0", "\t\0\0\0\0\0\0\0", "x" * 512, "x" * 513, "x" * 514]
)
_OPTIONAL = st.none() | _TEXTS
_KINDS = [str] * 7 + [str, str, str, int]
_LATER_KINDS = [*_KINDS, str, str, str, str]


@settings(deadline=None)
@given(fields=st.tuples(*[_OPTIONAL] * 10, st.integers(0, 1)))
def test_the_encoding_can_be_decoded(fields: tuple[Field, ...]) -> None:
    assert fields_of(encoded(1, fields), _KINDS) == (1, list(fields))


@settings(deadline=None)
@given(
    fields=st.tuples(*[_OPTIONAL] * 10, st.integers(0, 1)),
    later=st.tuples(*[_OPTIONAL] * 4).filter(lambda texts: texts != (None,) * 4),
)
def test_a_series_with_later_dimensions_has_its_own_encoding(
    fields: tuple[Field, ...], later: tuple[Field, ...]
) -> None:
    """The encoding of a series without them is a prefix, which no other series has."""
    without, with_them = encoded(1, fields), encoded(1, (*fields, *later))
    assert with_them.startswith(without)
    assert len(with_them) > len(without)
    assert fields_of(with_them, _LATER_KINDS) == (1, [*fields, *later])


@settings(deadline=None)
@given(texts=st.lists(_TEXTS, unique=True, max_size=8))
def test_different_texts_have_different_stored_forms(texts: list[str]) -> None:
    stored = [storable(text) for text in texts]
    # What is shown of one can be sent as well.
    everything = dict.fromkeys([*texts, *filter(None, stored)])
    assert len({storable(text) for text in everything}) == len(everything)
    for text in everything:
        kept = storable(text)
        assert kept is not None
        assert len(kept.encode()) <= 512
        assert "\0" not in kept


def test_siphash_equals_its_reference() -> None:
    key = bytes(range(16))
    for size, expected in (
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
    ):
        assert siphash_128(key, bytes(range(size))).hex() == expected


_LABELS = (
    "cluster_id",
    "client_software_name",
    "client_software_version",
    "client_id",
    "principal",
    "group_id",
)
_ATTRIBUTES = ("topic", "node_id", "node_role")
_LATER = ("reason", "error", "acks", "partition")
_SERIES = st.tuples(
    st.tuples(*[_OPTIONAL] * 6),
    _TEXTS,
    st.tuples(*[_OPTIONAL] * 3),
    st.tuples(
        _OPTIONAL,
        _OPTIONAL,
        st.sampled_from((None, None, "all", "other")),
        st.sampled_from((None, None, "0", "other")),
    ),
)


def _push(
    labels: Sequence[str | None], metric: str, attributes: Sequence[str | None], later: Sequence[str | None]
) -> bytes:
    data = MetricsData()
    resource_metrics = data.resource_metrics.add()
    for key, text in zip(_LABELS, labels, strict=True):
        if text is not None:
            resource_metrics.resource.attributes.add(key=key).value.string_value = text
    point = resource_metrics.scope_metrics.add().metrics.add(name=metric).gauge.data_points.add(as_double=1)
    for key, text in zip((*_ATTRIBUTES, *_LATER), (*attributes, *later), strict=True):
        if text is not None:
            point.attributes.add(key=key).value.string_value = text
    return data.SerializeToString()


@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(series=st.lists(_SERIES, min_size=20, max_size=60, unique=True))
def test_series_hashes_are_equal_in_java_and_python(spark: SparkSession, series: list[Any]) -> None:
    register_key(spark, KEY)
    frame = spark.createDataFrame(
        pa.table({"at": range(len(series)), "otlp": [_push(*entry) for entry in series]})
    )
    text = plan(max_behind_s=3600, max_ahead_s=300)
    decoded = frame.select(
        "at",
        f.element_at(
            f.call_function(
                "otlp_series", "otlp", f.lit("instance"), f.lit(1), f.lit(text), f.lit(KEY.key_id)
            ),
            1,
        ).alias("series"),
    ).collect()
    found = {row["at"]: (row["series"]["series_high"], row["series"]["series_low"]) for row in decoded}
    for at, (labels, metric, attributes, later) in enumerate(series):
        stored = [[storable(item) for item in texts] for texts in (labels, attributes, later)]
        assert found[at] == series_hash(str(storable(metric)), *stored, breakdown=False)
    assert len(set(found.values())) == len(series)


@given(
    halves=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=30),
)
def test_hashes_that_share_a_half_are_distinguished(halves: list[tuple[int, int]]) -> None:
    high, low = (np.array([half[at] for half in halves], np.int64) for at in (0, 1))
    codes, first = distinct(high, low)
    assert [halves[at] for at in first[codes].tolist()] == halves
    assert len(first) == len(set(halves))


def test_another_key_gives_other_hashes() -> None:
    other = type(KEY)(key_id="other", secret=bytes(16))
    assert not {*hash_of(1, ("a",))} & {*hash_of(1, ("a",), other)}
    assert "secret" not in repr(other)
