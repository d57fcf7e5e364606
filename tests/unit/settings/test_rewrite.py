"""Settings of a listener that rewrites addresses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from receiver.settings.model import ReceiverSettings


def _settings(count: int = 1, rewrite: dict[str, Any] | None = None, **more: Any) -> ReceiverSettings:
    listeners = [
        {
            "name": f"L{number}",
            "bind": f"127.0.0.1:{29000 + number}",
            "upstream": "kafka-1:9092",
            "addresses": "rewrite",
            "rewrite": {"host": "gw", "first_port": 30_000 + 200 * number, "nodes": 100, **(rewrite or {})},
        }
        for number in range(count)
    ]
    return ReceiverSettings.model_validate({"listeners": listeners, **more})


def test_each_node_has_a_port() -> None:
    (listener,) = _settings().listeners
    assert {node_id: str(bind) for node_id, bind in listener.node_binds.items()} == {
        node_id: f"127.0.0.1:{30_000 + node_id}" for node_id in range(100)
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rewrite": {"first_port": 65_500}}, "needs ports up to 65599: lower first_port or nodes"),
        ({"rewrite": {"first_port": 28_990}}, "the port of node 10"),
        ({"rewrite": {"host": "gw:1/"}}, "listeners.0.rewrite.host"),
        ({"rest": {"bind": "127.0.0.1:30042"}}, r"listeners\[0\] listens on 127.0.0.1:30042 already"),
        (
            {"count": 2, "rewrite": {"first_port": 30_000}},
            r"listeners\[0\] listens on 127.0.0.1:30000 already, with the ports of nodes",
        ),
        ({"count": 3}, "need 303 ports, and at most 250 are possible"),
        ({"broker": {"id": 1}}, "has a broker for each node: set it to auto"),
    ],
)
def test_what_can_not_work_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        _settings(**arguments)


@pytest.mark.parametrize("more", [{"addresses": "rewrite"}, {"rewrite": {"host": "gw", "first_port": 1}}])
def test_both_settings_belong_together(more: dict[str, Any]) -> None:
    listener = {"name": "L", "bind": "127.0.0.1:29000", "upstream": "kafka-1:9092", **more}
    with pytest.raises(ValidationError, match="belong together"):
        ReceiverSettings.model_validate({"broker": {"id": 1}, "listeners": [listener]})


def test_several_addresses_are_for_clients_that_bootstrap() -> None:
    listener = {"name": "L", "bind": "127.0.0.1:29000", "upstream": "kafka-1:9092, kafka-2:9093"}
    with pytest.raises(ValidationError, match="clients of a listener reach one broker"):
        ReceiverSettings.model_validate({"listeners": [listener]})
    rewriting = {**listener, "addresses": "rewrite", "rewrite": {"host": "gw", "first_port": 30_000}}
    (one,) = ReceiverSettings.model_validate({"listeners": [rewriting]}).listeners
    assert str(one.upstream) == "kafka-1:9092,kafka-2:9093"


@pytest.mark.parametrize(
    "upstream",
    ["", "kafka", "kafka-1:9092,", "kafka:1,kafka:1", "kafka:0", ",".join(f"k:{n}" for n in range(1, 34))],
)
def test_addresses_that_can_not_work_are_refused(upstream: str) -> None:
    listener = {"name": "L", "bind": "127.0.0.1:29000", "upstream": upstream}
    with pytest.raises(ValidationError, match="upstream"):
        ReceiverSettings.model_validate({"listeners": [listener]})


TLS = {"security_protocol": "SSL", "tls": {"cert_file": "a.crt", "key_file": "a.key"}}


def _by_name(host: str, **more: Any) -> ReceiverSettings:
    listener = {"name": "L", "bind": "127.0.0.1:29000", "upstream": "kafka:9092", "addresses": "rewrite"}
    return ReceiverSettings.model_validate({"listeners": [{**listener, "rewrite": {"host": host}, **more}]})


def test_each_node_has_a_name() -> None:
    (listener,) = _by_name("B{node_id}.gw.example", **TLS).listeners
    assert listener.node_binds == {}
    assert str(listener.public_address(12)) == "B12.gw.example:29000"
    assert listener.public_address(32) is None
    assert listener.rewrite is not None
    names = {"b0.gw.example": 0, "b12.gw.example": 12, "b007.gw.example": 7}
    for other in ("", "b.gw.example", "bx.gw.example", "b1.gw.example.", "xb1.gw.example", "b1.other", "b²"):
        names[other] = None  # type: ignore[assignment]
    names["b" + 5000 * "1" + ".gw.example"] = None  # type: ignore[assignment]
    assert {name: listener.rewrite.node_of(name) for name in names} == names


@pytest.mark.parametrize(
    ("host", "more", "problem"),
    [
        ("b{node_id}.gw", {}, "only with TLS clients say which name they want"),
        ("gw", TLS, "required: the port of node 0"),
        ("b{node}.gw", TLS, "the only field is {node_id}, once"),
        ("b{node_id}.{node_id}", TLS, "the only field is {node_id}, once"),
        ("b{node_id}.gw", TLS | {"rewrite": {"host": "b{node_id}", "first_port": 1}}, "leave out first_port"),
    ],
)
def test_names_that_can_not_work_are_refused(host: str, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        _by_name(host, **more)
