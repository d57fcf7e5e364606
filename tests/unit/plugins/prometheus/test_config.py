"""Settings that operators may write, and the errors of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.prometheus import PrometheusConfig
from receiver.host.discovery import PluginConfigError, load_plugins

WRITE = {"url": "http://127.0.0.1:9090/api/v1/write"}


def problem(**settings: Any) -> str:
    with pytest.raises(PluginConfigError) as caught:
        load_plugins([{"type": "prometheus", **settings}])
    return str(caught.value)


def test_the_type_names_the_plugin() -> None:
    (hosted,) = load_plugins([{"type": "prometheus", "bind": "127.0.0.1:9464"}])
    assert isinstance(hosted.plugin.config, PrometheusConfig)
    assert hosted.plugin.config.address == ("127.0.0.1", 9464)
    assert hosted.plugin.max_batch_items > 1


@pytest.mark.parametrize(
    ("bind", "address"),
    [("[::1]:1", ("::1", 1)), ("localhost:65535", ("localhost", 65535)), (None, None)],
)
def test_the_listen_address(bind: str | None, address: tuple[str, int] | None) -> None:
    config = PrometheusConfig.model_validate({"bind": bind, "remote_write": WRITE})
    assert config.address == address


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "needs bind, for example 127.0.0.1:9464, or remote_write, or both"),
        ({"bind": "9464"}, "must be host:port"),
        ({"bind": "127.0.0.1:0"}, "must be host:port"),
        ({"bind": "127.0.0.1:70000"}, "must be host:port"),
        ({"remote_write": {"url": "http://127.0.0.1:9090"}}, "needs the path too"),
        ({"remote_write": {"url": "ftp://h/w"}}, "must begin with http://"),
        ({"remote_write": {"url": "http://me:hunter2@h/w"}}, "must not hold a user or password"),
        ({"remote_write": {**WRITE, "version": "3.0"}}, "expected one of 1.0, 2.0"),
        ({"remote_write": {**WRITE, "tls": {}}}, "write https://, or leave tls out"),
        (
            {"remote_write": {**WRITE, "headers": {"content-type": "x"}}},
            "content-type is set by the protocol",
        ),
        ({"remote_write": {**WRITE, "headers": {"X-Scope": "x"}}}, "is no header name"),
        (
            {"remote_write": {**WRITE, "headers": {"x-prometheus-remote-write-version": "x"}}},
            "x-prometheus-remote-write-version is set by the protocol",
        ),
        ({"bind": "127.0.0.1:1", "resource_labels": ["client.id"]}, "'client.id' is no label name"),
        ({"bind": "127.0.0.1:1", "resource_labels": ["__name__"]}, "'__name__' is no label name"),
        ({"bind": "127.0.0.1:1", "resource_labels": ["instance"]}, "instance is set by the plugin"),
        ({"bind": "127.0.0.1:1", "resource_labels": ["exported_job"]}, "exported_job has a prefix"),
        ({"bind": "127.0.0.1:1", "resource_labels": ["attribute_x"]}, "attribute_x has a prefix"),
        ({"bind": "127.0.0.1:1", "allowed_hosts": ["*.example.com"]}, "'*.example.com' is no host name"),
        ({"bind": "127.0.0.1:1", "allowed_hosts": ["a.example:9464"]}, "leave out the scheme, the port"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(settings: dict[str, Any], error: str) -> None:
    assert error in problem(**settings)


def test_no_message_shows_a_secret() -> None:
    text = problem(remote_write={**WRITE, "headers": {"authorization": "hunter2\n"}})
    assert "authorization" in text
    assert "hunter2" not in text
