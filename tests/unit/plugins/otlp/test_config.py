from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receiver.host.discovery import PluginConfigError, load_plugins
from tests.unit.plugins.support import plugin

GRPC = "http://127.0.0.1:4317"


def config(**settings: Any) -> Any:
    return plugin(**settings).config


def test_the_defaults() -> None:
    c = config(endpoint=GRPC)
    assert (c.protocol, c.compression, c.timeout_ms, c.headers, c.tls) == ("grpc", "none", 10_000, {}, None)


@pytest.mark.parametrize(
    ("endpoint", "target", "secure"),
    [
        (GRPC, "dns:///127.0.0.1:4317", False),
        ("https://otel.example.com:443/", "dns:///otel.example.com:443", True),
        ("http://[::1]:4317", "dns:///[::1]:4317", False),
        ("http://unix:4317", "dns:///unix:4317", False),
    ],
)
def test_grpc_targets(endpoint: str, target: str, *, secure: bool) -> None:
    (one,) = config(endpoint=endpoint).all_endpoints
    assert (one.target, one.secure) == (target, secure)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
        ("https://otel.example.com", "https://otel.example.com/v1/metrics"),
        ("https://otel.example.com/api/otlp", "https://otel.example.com/api/otlp"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
    ],
)
def test_http_urls(endpoint: str, url: str) -> None:
    (one,) = config(endpoints=[endpoint], protocol="http").all_endpoints
    assert one.url == url


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "plugins[0]: needs endpoint, for example http://127.0.0.1:4317, or endpoints, a list"),
        ({"endpoint": GRPC, "endpoints": [GRPC]}, "plugins[0]: has endpoint and endpoints: "),
        ({"endpoints": []}, "plugins[0].endpoints: must have at least 1 entry"),
        ({"endpoints": [GRPC] * 65}, "plugins[0].endpoints: "),
        (
            {"endpoints": [GRPC, GRPC]},
            f"plugins[0].endpoints: {GRPC} and {GRPC} are one endpoint: leave one out",
        ),
        ({"endpoints": ["http://a:1", "http://a:1/"]}, "http://a:1 and http://a:1/ are one endpoint"),
        (
            {"endpoints": ["http://a", "http://a/x", "http://a/v1/metrics"], "protocol": "http"},
            "http://a and http://a/v1/metrics are one endpoint",
        ),
        ({"endpoints": [GRPC, "http://h"]}, "plugins[0].endpoints: 'http://h': gRPC needs a port"),
        (
            {"endpoints": ["https://h:1", "http://u:hunter2@h:1"]},
            "plugins[0].endpoints: 'http://***@h:1': must not hold a user",
        ),
        (
            {"endpoints": ["https://h:1", "http://h:1"], "tls": {}},
            "plugins[0].tls: the endpoint is http://, which is plaintext",
        ),
        ({"endpoint": "127.0.0.1:4317"}, "must begin with http:// (plaintext) or https:// (TLS)"),
        ({"endpoint": "grpc://h:1"}, 'plugins[0].endpoint: "grpc://h:1": must begin with http://'),
        ({"endpoint": "HTTPS://h:1"}, "must begin with http:// (plaintext) or https:// (TLS)"),
        ({"endpoint": "http://u:hun/hunter2@h:1"}, 'plugins[0].endpoint: "http://***@h:1": is no URL'),
        (
            {"endpoints": ["http://u:hun/hunter2@h:1"]},
            "plugins[0].endpoints: 'http://***@h:1': is no URL",
        ),
        ({"endpoint": "http://h"}, 'plugins[0].endpoint: "http://h": gRPC needs a port; 4317 is OTLP'),
        ({"endpoint": "http://h:0"}, "must name a host and a port"),
        ({"endpoint": "http://:4317"}, "must name a host and a port"),
        ({"endpoint": "http://h:99999"}, "is no URL"),
        ({"endpoint": "http://[::1:4317"}, "is no URL"),
        ({"endpoint": "http://h:1/v1/metrics"}, "gRPC has no path: leave out /v1/metrics, or set protocol"),
        ({"endpoint": "http://u:hunter2@h:1"}, 'plugins[0].endpoint: "http://***@h:1": must not hold a user'),
        ({"endpoint": "http://h:1\n"}, "must be plain ASCII without spaces"),
        (
            {"endpoint": "http://otel..svc:4317"},
            'plugins[0].endpoint: "http://otel..svc:4317": otel..svc has an empty label',
        ),
        ({"endpoint": "http://.otel:4317"}, ".otel has an empty label"),
        ({"endpoint": "http://${COLLECTOR}"}, "variables such as ${COLLECTOR} are not replaced here"),
        ({"endpoint": "http://{{host}}:1"}, "variables such as {{host}} are not replaced"),
        ({"endpoint": f"http://{'a' * 64}.svc:1"}, "has 64 characters, and a label has at most 63"),
        ({"endpoint": "http://" + "a.a" * 127 + ":1"}, "and a host name has at most 253"),
        ({"endpoint": "http://s\u00e4mmler:1"}, "write a host's name in its xn-- form (IDNA)"),
        ({"endpoint": "http://-otel:1"}, "-otel is not a host name"),
        ({"endpoint": "http://o*:1"}, "o* is not a host name"),
        ({"endpoint": "http://127.0.0.256:1"}, "127.0.0.256 is not an IPv4 address"),
        ({"endpoint": "http://[::1]x:1"}, ""),
        ({"endpoint": "http://${COLLECTOR}", "protocol": "http"}, "variables such as ${COLLECTOR}"),
        ({"endpoint": "http://h:1/x?y=1", "protocol": "http"}, "must have no query and no fragment"),
        ({"endpoint": GRPC, "protocol": "udp"}, 'plugins[0].protocol: "udp": expected one of grpc, http'),
        ({"endpoint": GRPC, "compression": "zstd"}, 'plugins[0].compression: "zstd": expected one of none'),
        ({"endpoint": GRPC, "timeout_ms": 0}, "plugins[0].timeout_ms: 0: expected an integer, 1 to 600000"),
        ({"endpoint": GRPC, "tls": {}}, "plugins[0].tls: the endpoint is http://, which is plaintext"),
        (
            {"endpoint": "https://h:1", "tls": {"ca_file": "/no/such.pem"}},
            'plugins[0].tls.ca_file: "/no/such.pem": ',
        ),
        (
            {"endpoint": "https://h:1", "tls": {"cert_file": __file__}},
            "plugins[0].tls: cert_file and key_file go together: key_file is missing",
        ),
        ({"endpoint": GRPC, "headers": {"Authorization": "hunter2"}}, "'Authorization' is no header name"),
        ({"endpoint": GRPC, "headers": {"content-type": "x"}}, "content-type is set by the protocol"),
        ({"endpoint": GRPC, "headers": {"grpc-timeout": "x"}}, "grpc-timeout is set by the protocol"),
        ({"endpoint": GRPC, "headers": {"x-bin": "x"}}, "binary headers (-bin) are not supported"),
        ({"endpoint": GRPC, "headers": {"x": "hunter2\r\ny: z"}}, "the value of x must be printable ASCII"),
        ({"endpoint": GRPC, "headers": {"x": 12345}}, "plugins[0].headers.x: expected text, or {file: PATH}"),
        (
            {"endpoint": GRPC, "headers": {"x": {"file": "/no/such"}}},
            "the secret's file /no/such cannot be read",
        ),
        ({"endpoint": GRPC, "header": {"x": "hunter2"}}, "header: unknown key; did you mean headers?"),
    ],
)
def test_a_wrong_setting_is_named_with_its_fix(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(PluginConfigError) as caught:
        load_plugins([{"type": "otlp", **settings}])
    text = str(caught.value)
    assert error in text
    assert text.startswith("plugins[0]")
    assert "hunter2" not in text
    assert "12345" not in text


def test_headers_are_shown_as_secrets_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("Bearer hunter2-file\n")
    one = plugin(endpoint=GRPC, headers={"authorization": {"file": str(file)}, "x-key": "hunter2-text"})
    c: Any = one.config
    assert c.headers["authorization"].get_secret_value() == "Bearer hunter2-file"
    shown = [repr(c), str(c), repr(one), c.model_dump_json(), repr(c.model_dump())]
    assert "hunter2" not in "".join(shown)
