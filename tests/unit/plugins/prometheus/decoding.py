"""Decodes remote write by Prometheus's definitions, independently of the encoder."""

from __future__ import annotations

from typing import Any, Final

import cramjam
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS: Final = {
    "double": _Field.TYPE_DOUBLE,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "sint32": _Field.TYPE_SINT32,
    "sint64": _Field.TYPE_SINT64,
    "string": _Field.TYPE_STRING,
}


def _messages(package: str, definitions: str) -> dict[str, type[Any]]:
    """Build message types from lines: a message's name, then its fields indented."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message: Any = None
    for line in definitions.strip().splitlines():
        words = line.split()
        if len(words) == 1:
            message = file.message_type.add(name=words[0])
            continue
        *repeated, kind, name, number = words
        field = message.field.add(name=name, number=int(number))
        field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        if kind in _KINDS:
            field.type = _KINDS[kind]
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        item.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{item.name}"))
        for item in file.message_type
    }


_HISTOGRAM = """
Histogram
    uint64 count_int 1
    double sum 3
    sint32 schema 4
    double zero_threshold 5
    uint64 zero_count_int 6
    repeated BucketSpan negative_spans 8
    repeated sint64 negative_deltas 9
    repeated BucketSpan positive_spans 11
    repeated sint64 positive_deltas 12
    int64 timestamp 15
    int64 start_timestamp 17
BucketSpan
    sint32 offset 1
    uint32 length 2
"""
_ONE: Final = _messages(
    "prometheus",
    """
WriteRequest
    repeated TimeSeries timeseries 1
TimeSeries
    repeated Label labels 1
    repeated Sample samples 2
    repeated Histogram histograms 4
Label
    string name 1
    string value 2
Sample
    double value 1
    int64 timestamp 2
"""
    + _HISTOGRAM.strip(),
)
_TWO: Final = _messages(
    "io.prometheus.write.v2",
    """
Request
    repeated string symbols 4
    repeated TimeSeries timeseries 5
TimeSeries
    repeated uint32 labels_refs 1
    repeated Sample samples 2
    repeated Histogram histograms 3
    Metadata metadata 5
Sample
    double value 1
    int64 timestamp 2
    int64 start_timestamp 3
Metadata
    uint32 type 1
    uint32 help_ref 3
    uint32 unit_ref 4
"""
    + _HISTOGRAM.strip(),
)


#: Labels in their order, the one sample or histogram, and type, help and unit if the message has
#: them.
Decoded = tuple[dict[str, str], Any, tuple[int, str, str] | None]


def decoded(body: bytes, version: str) -> list[Decoded]:
    """Return each series of a request."""
    found: list[Decoded] = []
    if version == "1.0":
        for series in _ONE["WriteRequest"].FromString(body).timeseries:
            labels = [(label.name, label.value) for label in series.labels]
            assert labels == sorted(labels)
            found.append((dict(labels), _only(series), None))
        return found
    request = _TWO["Request"].FromString(body)
    symbols = list(request.symbols)
    assert symbols[0] == ""
    assert len(set(symbols)) == len(symbols)
    for series in request.timeseries:
        texts = [symbols[reference] for reference in series.labels_refs]
        labels = list(zip(texts[::2], texts[1::2], strict=True))
        assert labels == sorted(labels)
        assert all(name and value for name, value in labels)
        described = series.metadata
        metadata = (described.type, symbols[described.help_ref], symbols[described.unit_ref])
        found.append((dict(labels), _only(series), metadata))
    return found


def _only(series: Any) -> Any:
    samples = list(series.samples) + list(series.histograms)
    assert len(samples) == 1
    return samples[0]


def unpacked(content: bytes) -> bytes:
    """Return the uncompressed body of a request."""
    return bytes(cramjam.snappy.decompress_raw(content))
