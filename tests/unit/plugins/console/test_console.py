from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from plugins.console import ConsoleReceiver
from receiver.host.discovery import PluginConfigError, load_plugins
from receiver.host.host import PluginHost
from receiver.plugin import PermanentError, Push
from tests.unit.host.support import push
from tests.unit.plugins.support import client_push


def console(**settings: Any) -> ConsoleReceiver:
    (hosted,) = load_plugins([{"type": "console", **settings}])
    assert isinstance(hosted.plugin, ConsoleReceiver)
    return hosted.plugin


def printed(capsys: pytest.CaptureFixture[str], one: Push, **settings: Any) -> list[str]:
    console(**settings).export(one.context, one.payload)
    out, err = capsys.readouterr()
    assert err == ""
    assert out.endswith("\n")
    return out.splitlines()


def test_a_push_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, client_push("ck-producer-star-01"))
    assert line == (
        "push time=2023-11-14T22:13:20.000Z client_id=producer-1 client_instance_id=AAAAAAAAAAAAAAAAAAAAAQ "
        "client_software_name=apache-kafka-java client_software_version=4.4.0 principal=User:ANONYMOUS "
        "listener=CLIENT source=127.0.0.1:40000 metrics=10 points=10 bytes=1448 terminating=false"
    )


def test_the_sasl_mechanism_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    one = client_push("ck-producer-star-01")
    context = dataclasses.replace(one.context, principal="User:alice", sasl_mechanism="SCRAM-SHA-512")
    (line,) = printed(capsys, dataclasses.replace(one, context=context))
    assert " principal=User:alice sasl_mechanism=SCRAM-SHA-512 listener=CLIENT " in line


def test_with_metrics_every_point_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, client_push("ck-producer-star-01"), metrics=True)
    assert len(lines) == 11
    assert lines[3] == "  org.apache.kafka.producer.node.request.latency.avg{node.id=1} 1.889"


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    one = client_push("java44-producer-star-01")
    (line,) = printed(capsys, one, format="json", metrics=True)
    document = json.loads(line)
    assert document["client_software_name"] == "apache-kafka-java"
    assert document["terminating"] is False
    assert document["bytes"] == 9682
    assert document["points"] == len(document["data_points"])
    names = [
        metric.name
        for resource in one.payload.metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    assert {point["name"] for point in document["data_points"]} == set(names)
    (without,) = printed(capsys, one, format="json")
    assert "data_points" not in json.loads(without)


def test_client_names_cannot_forge_output(capsys: pytest.CaptureFixture[str]) -> None:
    one = client_push("ck-producer-star-01")
    context = dataclasses.replace(one.context, client_id='x\n\x1b[2Jpush principal="User:admin" \u202e')
    for settings in ({}, {"format": "json"}):
        (line,) = printed(capsys, Push(context=context, payload=one.payload), **settings)
        assert line.isascii()
        assert line.isprintable()
    assert '"User:admin"' not in line


def every_kind() -> bytes:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="nan").gauge.data_points.add(as_double=math.nan)
    metrics.add(name="whole").sum.data_points.add(as_int=-3)
    histogram = metrics.add(name="histogram").histogram.data_points.add(count=4, sum=10.5)
    histogram.attributes.add(key="flag").value.bool_value = True
    histogram.attributes.add(key="list").value.array_value.values.add(string_value="x")
    metrics.add(name="summary").summary.data_points.add(count=2, sum=3)
    metrics.add(name="exponential").exponential_histogram.data_points.add(count=1, sum=2)
    metrics.add(name="without sum").histogram.data_points.add(count=1)
    metrics.add(name="without value").gauge.data_points.add()
    metrics.add(name="without data")
    return data.SerializeToString()


def test_every_kind_of_metric_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    one = push(data=every_kind())
    lines = printed(capsys, one, metrics=True)[1:]
    assert [line.split("{")[0].strip() for line in lines] == [
        "nan", "whole", "histogram", "summary", "exponential", '"without sum"', '"without value"',
    ]  # fmt: skip
    assert lines[1] == "  whole{} -3"
    assert lines[2] == '  histogram{flag=true,list="[\\"x\\"]"} 10.5 count=4'
    assert lines[5:] == ['  "without sum"{} no value count=1', '  "without value"{} no value']
    (line,) = printed(capsys, one, format="json", metrics=True)
    points = json.loads(line, parse_constant=pytest.fail)["data_points"]
    assert points[0]["value"] == "nan"
    assert [points[5]["value"], points[6]["value"]] == [None, None]


def test_a_closed_stdout_is_permanent(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", buffering=1)
    monkeypatch.setattr(sys, "stdout", stream)
    one = push(data=b"")
    with pytest.raises(PermanentError, match="stdout cannot be written"):
        console().export(one.context, one.payload)
    with pytest.raises(BrokenPipeError):
        stream.close()
    with pytest.raises(PermanentError, match="closed file"):
        console().export(one.context, one.payload)


def test_a_wrong_format_is_named() -> None:
    with pytest.raises(PluginConfigError, match=r'plugins\[0\].format: "xml": expected one of line, json'):
        console(format="xml")


def test_through_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    host = PluginHost(load_plugins([{"type": "console"}]))
    host.start()
    host.offer(client_push())
    host.offer(client_push("ck-consumer-star-05-terminating"))
    assert host.stop(5)
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("push ")]) == 2
