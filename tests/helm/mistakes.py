"""Configurations that the receiver refuses to start with, by the rule that refuses each.

Keys, types, bounds and choices are in the chart's schema, which is generated from the settings. The
rules here are the functions that check values and combinations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel

from deploy.chart.configurations import BUILT_IN
from receiver.host.discovery import installed_types
from receiver.host.settings import HostSettings
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.model import ReceiverSettings

Config = Mapping[str, Any]

TLS: Final[Config] = {"cert_file": "/run/secrets/tls/a.crt", "key_file": "/run/secrets/tls/a.key"}
_FILE: Final[Config] = {"file": "/run/secrets/a/b"}
_TOKEN: Final[Config] = {"name": "ops", "role": "editor", "file": "/run/secrets/a/b"}
_KAFKA: Final[Config] = {"type": "kafka_topic", "bootstrap_servers": "kafka:9092", "topic": "telemetry"}
_OTLP: Final[Config] = {"type": "otlp", "endpoint": "http://collector:4317"}
_SASL_OPTIONS: Final[Config] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "telemetry",
    "sasl.password": _FILE,
}
_WRITE: Final[Config] = {"url": "http://prometheus:9090/api/v1/write"}


def _listener(**keys: Any) -> Config:
    return {"listeners": [{"name": "CLIENT", "bind": "0.0.0.0:19092", "upstream": "127.0.0.1:29092", **keys}]}


def _of_cluster(**options: Any) -> Config:
    return {
        "subscriptions": {"store": "kafka", "kafka": {"bootstrap_servers": "kafka:9092", "options": options}}
    }


def _listeners(**keys: Any) -> Config:
    second = {"name": "SECOND", "bind": "0.0.0.0:19093", "upstream": "127.0.0.1:29093"}
    return {"listeners": [*_listener()["listeners"], {**second, **keys}]}


def _rewriting(rewrite: Config | None = None, **keys: Any) -> Config:
    given = {"host": "gateway.example", "first_port": 29100} if rewrite is None else rewrite
    listener = {"addresses": "rewrite", "rewrite": given, "broker": {"id": "auto"}}
    return _listener(**{**listener, **keys})


def _rest(**keys: Any) -> Config:
    return {"rest": {"bind": "0.0.0.0:8642", "open": ["livez", "readyz", "metrics"], **keys}}


def _privacy(**keys: Any) -> Config:
    return {"telemetry": {"privacy": keys}}


def _plugin(plugin: Config, **keys: Any) -> Config:
    return {"plugins": [{"delivery": "memory", **plugin, **keys}]}


def _prometheus(**keys: Any) -> Config:
    return _plugin({"type": "prometheus", "bind": "0.0.0.0:9464"}, **keys)


#: Configurations by the rule that refuses them. Two rules are no validators: ``Quirks`` reads
#: versions, and ``load_plugins`` compares plugins.
MISTAKES: Final[Mapping[str, Sequence[Config]]] = {
    "HostPort": [
        _listener(upstream=text)
        for text in (
            *("broker", "broker:", "broker:65536", "broker:-1", ":9092", "a b:9092", "-a:9092", "a..b:9092"),
            *("1.2.3:9092", "256.1.1.1:9092", "fd00::1:9092", "[fd00:::1]:9092", "[1.2.3.4]:9092"),
            *("http://broker:9092", f"{'a' * 64}.b:9092"),
        )
    ]
    + [_listener(advertised="broker:99999"), _rest(bind="0.0.0.0:65536")],
    "HostPorts": [
        _rewriting(upstream=text)
        for text in (
            *("kafka-1:9092,", "a:1,a:1", "a:1, a:1", "a:1,b", "a:1,b:65536", ","),
            ",".join(f"k:{port}" for port in range(1, 34)),
        )
    ],
    "RewriteSettings._nodes_can_be_told_apart": [
        _rewriting({"host": "gateway.example"}),
        *(
            _rewriting({"host": host, **more}, security_protocol="SSL", tls=TLS)
            for host, more in (
                ("b{node}.gw", {}),
                ("b{node_id}.{node_id}", {}),
                ("b{node_id}.gw", {"first_port": 29100}),
                ("b{node_id.gw", {"first_port": 29100}),
            )
        ),
    ],
    "RewriteSettings._ports_exist": [
        _rewriting({"host": "gw", "first_port": 65_505}),
        _rewriting({"host": "gw", "first_port": 65_500, "nodes": 37}),
    ],
    "ListenerSettings._addresses_to_write": [
        _listener(addresses="rewrite"),
        _listener(rewrite={"host": "gw", "first_port": 29100}),
        _rewriting(advertised="gw:29092"),
        _listener(upstream="kafka-1:9092,kafka-2:9092"),
        _rewriting({"host": "b{node_id}.gw"}),
        _rewriting({"host": "gw", "first_port": 19_090}),
    ],
    "ReceiverSettings._can_rewrite": [
        _rewriting(broker={"id": 1}),
        _rewriting(broker={"id": 0}),
        {
            "listeners": [
                {
                    **_rewriting({"host": "gw", "first_port": 30_000 + 200 * number, "nodes": 125})[
                        "listeners"
                    ][0],
                    "name": f"L{number}",
                    "bind": f"0.0.0.0:{19_092 + number}",
                }
                for number in range(2)
            ]
        },
    ],
    "_have_ports": [_listener(upstream="broker:0")],
    "_network": [
        _listener(proxy_protocol={"from": [text]})
        for text in (
            *("10.0.0.1/8", "10.0.0.0/33", "10.0.0/8", "300.0.0.0/8", "all", "fd00::1/8", "fd00::/129"),
            *("fd00:1::/16", "10.128.0.0/8", "2001:db8:8000::/32", ":::/0"),
        )
    ],
    "_mapping_rules": [
        _listener(security_protocol="SSL", tls=TLS, principal_mapping_rules=text)
        for text in ("", "RULE:^CN=(.*$/$1/", "RULE:(/$1/", "default", "RULE:^CN=([^,]+),.*$/$1/X")
    ],
    "ServerTlsSettings._can_verify": [
        _listener(security_protocol="SSL", tls={**TLS, "client_auth": "required"}),
        _listener(security_protocol="SSL", tls={**TLS, "client_ca_file": "/run/secrets/tls/ca.crt"}),
        _rest(tls={**TLS, "client_auth": "requested"}),
        _rest(tls={**TLS, "client_ca_file": "/run/secrets/tls/ca.crt"}),
    ],
    "UpstreamTlsSettings._both_or_none": [
        _listener(upstream_tls={"cert_file": "/run/secrets/tls/a.crt"}),
        _listener(upstream_tls={"key_file": "/run/secrets/tls/a.key"}),
    ],
    "ListenerSettings._tls_where_spoken": [
        _listener(security_protocol="SSL"),
        _listener(security_protocol="SASL_SSL"),
        _listener(tls=TLS),
        _listener(security_protocol="SASL_PLAINTEXT", tls=TLS),
        _listener(principal_mapping_rules="RULE:^CN=([^,]+),.*$/$1/"),
        _listener(
            security_protocol="SASL_SSL", tls=TLS, principal_mapping_rules="RULE:^CN=([^,]+),.*$/$1/,DEFAULT"
        ),
    ],
    "ReceiverSettings._distinct": [
        _listeners(name="CLIENT"),
        _listeners(bind="0.0.0.0:19092"),
        _listeners(bind="127.0.0.1:19092"),
        _listeners(
            bind="127.0.0.1:19100",
            addresses="rewrite",
            rewrite={"host": "gw", "first_port": 19090, "nodes": 5},
            broker={"id": "auto"},
        ),
        _listener(bind="127.0.0.1:19092", upstream="127.0.0.1:19092"),
    ],
    "ReceiverSettings._rest_apart": [
        _listener(bind="0.0.0.0:8642"),
        _rewriting({"host": "gw", "first_port": 8640}),
    ],
    "TokenSettings._digest_alone": [_rest(tokens=[{"name": "ops", "role": "editor", "sha256": "AB" * 32}])],
    "TokenSettings._one_source": [
        _rest(tokens=[{"name": "ops", "role": "editor"}]),
        _rest(tokens=[{**_TOKEN, "sha256": "ab" * 32}]),
    ],
    "RestSettings._safe": [
        _rest(clients=[{"name": "ops", "role": "editor", "subject": "CN=ops"}]),
        _rest(tls=TLS, clients=[{"name": "ops", "role": "editor", "subject": "CN=ops"}]),
        _rest(tokens=[_TOKEN, {**_TOKEN, "file": "/run/secrets/a/c"}]),
        _rest(
            tokens=[
                {"name": "a", "role": "editor", "sha256": "ab" * 32},
                {"name": "b", "role": "editor", "sha256": "ab" * 32},
            ]
        ),
        _rest(
            tls={**TLS, "client_ca_file": "/run/secrets/tls/ca.crt", "client_auth": "requested"},
            clients=[
                {"name": "a", "role": "editor", "subject": "CN=ops"},
                {"name": "b", "role": "editor", "subject": "CN=ops"},
            ],
        ),
    ],
    "SubscriptionStoreSettings._parts_of_the_store": [
        {"subscriptions": {"store": "file"}},
        {"subscriptions": {"store": "file", "path": None}},
        {"subscriptions": {"store": "kafka"}},
        {"subscriptions": {"store": "kafka", "kafka": None}},
        {"subscriptions": {"kafka": {"bootstrap_servers": "kafka:9092"}}},
        {"subscriptions": {"store": "sqlite", "kafka": {"bootstrap_servers": "kafka:9092"}}},
    ],
    "checked_options": [
        _of_cluster(**{"ssl.keystore.password": _FILE}),
        _of_cluster(**{"security.protocol": "TLS"}),
        _of_cluster(**{"client.id": 5}),
        _of_cluster(**{"client.id": _FILE}),
        _of_cluster(**{**_SASL_OPTIONS, "sasl.password": {"path": "/a"}}),
        _of_cluster(**{"request.timeout.ms": 5}),
        _of_cluster(**{"request.timeout.ms": "5000"}),
        _of_cluster(**{"security.protocol": "SSL", "ssl.truststore.type": "JKS"}),
        _of_cluster(**{"ssl.ca.location": "/a", "ssl.truststore.location": "/a"}),
        _of_cluster(**{**_SASL_OPTIONS, "sasl.mechanism": "GSSAPI"}),
        _of_cluster(**{**_SASL_OPTIONS, "sasl.mechanisms": "PLAIN"}),
    ],
    "checked_login": [
        _of_cluster(**{"sasl.username": "a"}),
        _of_cluster(**{**_SASL_OPTIONS, "security.protocol": "SSL"}),
        *(
            _of_cluster(**{name: value for name, value in _SASL_OPTIONS.items() if name != missing})
            for missing in ("sasl.mechanism", "sasl.username", "sasl.password")
        ),
    ],
    "_unique": [
        {"telemetry": {"compression": ["gzip", "gzip"]}},
        {"telemetry": {"quirks": [{"client_software_name": "a", "compression": ["gzip", "gzip"]}]}},
    ],
    "_regular_expression": [
        {"telemetry": {"quirks": [{"client_software_name": "("}]}},
        {"telemetry": {"quirks": [{"client_software_name": "a", "bad_metrics": ["(?=a)"]}]}},
        {"telemetry": {"series": {"client_id_folding": [{"pattern": "[", "replacement": ""}]}}},
        _privacy(rules=[{"action": "drop", "metric": "*"}]),
    ],
    "_with_type": [{"plugins": [{"delivery": "memory"}]}, {"plugins": [{"type": ""}]}],
    "ReceiverSettings._room_for_a_slow_reader": [
        {"limits": {"max_held_bytes": 7_340_031}},
        {"limits": {"max_held_bytes": "7.3 MB"}},
        _listener(socket_buffer_bytes=67_108_864),
    ],
    "TelemetrySettings._room_for_one_push": [
        {"telemetry": {"max_bytes": 4_194_304}},
        {"telemetry": {"max_bytes": "4MiB"}},
        {"telemetry": {"max_inflated_bytes": 1_000_000}},
    ],
    "PrivacyRuleSettings._one_subject": [
        _privacy(rules=[{"action": "drop"}]),
        _privacy(rules=[{"action": "drop", "attribute": "a", "metric": "b"}]),
        _privacy(rules=[{"action": "hash", "metric": "b"}], key={"file": "/run/secrets/a/b"}),
    ],
    "PrivacySettings._key_where_needed": [
        _privacy(pseudonymize=["principal"]),
        _privacy(rules=[{"action": "hash", "attribute": "a"}]),
    ],
    "ClientIdFoldingSettings._groups_are_there": [
        {"telemetry": {"series": {"client_id_folding": [{"pattern": "(a)b", "replacement": "\\2"}]}}}
    ],
    "Quirks": [
        {"telemetry": {"quirks": [{"client_software_name": "a", "client_software_version": text}]}}
        for text in ("(", ">=1.x", ">=", ">=1.0,<x")
    ],
    "load_plugins": [
        _plugin({"type": "oltp"}),
        _plugin(_OTLP, name="-"),
        {"plugins": [{**_OTLP, "delivery": "memory", "name": "one"}] * 2},
        {"plugins": [{**_OTLP, "spool": {"path": "spool/one", "max_bytes": 1_048_576}}] * 2},
        {
            "plugins": [
                {**_OTLP, "spool": {"path": "spool/otlp", "max_bytes": 1_048_576}, "name": "b"},
                {**_OTLP, "spool": {"max_bytes": 1_048_576}, "name": "otlp"},
            ]
        },
    ],
    "SpoolSettings._its_own": [
        {"plugins": [{**_OTLP, "spool": {"path": text, "max_bytes": 1_048_576}}]} for text in ("", ".", "./")
    ],
    "SpoolFilesConfig._check_path": [
        _plugin({"type": "spool_files", "max_bytes": 1_048_576}, path=text) for text in ("", ".", "./")
    ],
    "TlsConfig._pair": [
        _plugin(_OTLP, endpoint="https://collector:4317", tls={"cert_file": "/run/secrets/tls/a.crt"}),
        _plugin(_KAFKA, security_protocol="SSL", tls={"key_file": "/run/secrets/tls/a.key"}),
        _prometheus(
            remote_write={
                "url": "https://prometheus:9090/api/v1/write",
                "tls": {"cert_file": "/run/secrets/tls/a.crt"},
            }
        ),
    ],
    "OtlpConfig._check_endpoints": [
        _plugin(_OTLP, endpoint=text)
        for text in (
            *(
                "collector:4317",
                "http://collector",
                "http://collector:4317/v1",
                "http://u:hunter2@collector:4317",
            ),
            *("http://:4317", "http://collector:0", "http://collector:99999", "http://collector:4317?a=b"),
            *("http://a b:4317", "HTTP://collector:4317", ""),
        )
    ]
    + [_plugin({"type": "otlp", "protocol": "http"}, endpoint="ftp://collector/v1/metrics")]
    + [_plugin({"type": "otlp"}, endpoints=["http://a:4317", text]) for text in ("http://a:4317", "b:4317")],
    "OtlpConfig._check_headers": [
        _plugin(_OTLP, headers={name: _FILE})
        for name in ("X-Token", "a b", "content-type", "grpc-timeout", "trace-bin", ":path")
    ],
    "OtlpConfig._check_tls_needs_https": [_plugin(_OTLP, tls={})],
    "OtlpConfig._check_one_of_endpoint_and_endpoints": [
        _plugin({"type": "otlp"}),
        _plugin(_OTLP, endpoints=["http://a:4317"]),
    ],
    "OAuthConfig._check_token_endpoint": [
        _plugin(
            _KAFKA,
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            oauth={"token_endpoint_url": text, "client_id": "a", "client_secret": _FILE},
        )
        for text in ("login.example.com", "ftp://login.example.com", "https://u:hunter2@login.example.com")
    ],
    "KafkaTopicConfig._check_bootstrap_servers": [
        _plugin(_KAFKA, bootstrap_servers=text)
        for text in ("", "kafka", "kafka:0", "kafka:65536", "u:hunter2@kafka:9092", "kafka:9092,", "a:1 b:2")
    ],
    "KafkaTopicConfig._check_topic": [
        _plugin(_KAFKA, topic=text) for text in ("", "a b", ".", "..", "a" * 250)
    ],
    "KafkaTopicConfig._check_security": [
        _plugin(_KAFKA, tls={}),
        _plugin(_KAFKA, security_protocol="SASL_SSL"),
        _plugin(_KAFKA, sasl_mechanism="PLAIN", sasl_username="a", sasl_password=_FILE),
        _plugin(_KAFKA, security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER"),
        _plugin(_KAFKA, oauth={"token_endpoint_url": "https://a", "client_id": "a", "client_secret": _FILE}),
        _plugin(_KAFKA, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="a"),
        _plugin(_KAFKA, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_password=_FILE),
        _plugin(
            _KAFKA,
            security_protocol="SASL_SSL",
            sasl_mechanism="PLAIN",
            sasl_username="",
            sasl_password=_FILE,
        ),
        _plugin(_KAFKA, sasl_username="a"),
    ],
    "RemoteWriteConfig._check_url": [
        _prometheus(remote_write={"url": text})
        for text in ("prometheus:9090/api", "http://prometheus:9090", "http://prometheus:9090/", "http:///w")
    ],
    "RemoteWriteConfig._check_headers": [
        _prometheus(remote_write={**_WRITE, "headers": {name: _FILE}})
        for name in ("X-Token", "content-type", "x-prometheus-remote-write-version")
    ],
    "RemoteWriteConfig._check_tls_needs_https": [_prometheus(remote_write={**_WRITE, "tls": {}})],
    "PrometheusConfig._address": [_prometheus(bind=text) for text in ("9464", ":9464", "0.0.0.0:99999")],
    "PrometheusConfig._labels": [
        _prometheus(resource_labels=[text]) for text in ("a-b", "__a", "job", "exported_a", "1a")
    ],
    "PrometheusConfig._hosts": [_prometheus(allowed_hosts=[text]) for text in ("*.a", "http://a", "a:1", "")],
    "PrometheusConfig._check_web_config": [_prometheus(web_config_file="web.yaml")],
    "BrokerLoginSettings._not_as_text": [{"broker": {"login": {"username": "a", "password": "hunter2"}}}],
    "PrometheusConfig._check_has_output": [_plugin({"type": "prometheus"})],
}

#: A configuration near to many of these mistakes, which is right.
GOOD: Final[Config] = {
    "broker": {"login": {"username": "telemetry", "password": _FILE}},
    "drain": {"timeout_s": "1.5m"},
    "limits": {"max_held_bytes": "1GiB"},
    "listeners": [
        {
            "name": "SSL",
            "bind": "[::]:19092",
            "upstream": "[fd00::1:2]:29092",
            "advertised": "Broker_1.example.:9092",
            "security_protocol": "SSL",
            "tls": {**TLS, "client_ca_file": "/run/secrets/tls/ca.crt", "client_auth": "requested"},
            "upstream_tls": {"cert_file": "/run/secrets/tls/a.crt", "key_file": "/run/secrets/tls/a.key"},
            "principal_mapping_rules": "RULE:^CN=([^,]+),OU=(a\\/b).*$/$1@$2/L, DEFAULT",
            "proxy_protocol": {
                "from": [
                    *(
                        "10.128.0.0/9",
                        "192.0.2.1",
                        "0.0.0.0/0",
                        "255.255.255.255/32",
                        "10.0.0.4/30",
                        "fd00::/8",
                    ),
                    *("::1", "::/0", "2001:db8:8000::/33", "fd00:1:2:3:4:5:6:7", "2001:db8::1:0/112"),
                ]
            },
        },
        {"name": "B", "bind": "0.0.0.0:19093", "upstream": "10.0.0.255:65535"},
        {
            "name": "PORTS",
            "bind": "0.0.0.0:29092",
            "upstream": "kafka-1:9092, [::1]:9092",
            "addresses": "rewrite",
            "broker": {"id": "auto"},
            "rewrite": {"host": "gateway.example", "first_port": 29093, "nodes": 128},
        },
        {
            "name": "NAMES",
            "bind": "0.0.0.0:29443",
            "upstream": "kafka-1:9092",
            "addresses": "rewrite",
            "broker": {"id": "auto"},
            "rewrite": {"host": "b{node_id}.gateway.example"},
            "security_protocol": "SASL_SSL",
            "tls": TLS,
        },
    ],
    "rest": {
        "bind": "0.0.0.0:8642",
        "open": ["livez", "readyz"],
        "tls": {**TLS, "client_ca_file": "/run/secrets/tls/ca.crt", "client_auth": "requested"},
        "clients": [{"name": "a", "role": "editor", "subject": "CN=a"}],
        "tokens": [{**_TOKEN, "name": "b"}, {"name": "c", "role": "viewer", "sha256": "ab" * 32}],
    },
    "subscriptions": {
        "store": "kafka",
        "path": "./copy.json",
        "kafka": {
            "bootstrap_servers": "kafka-1:9092, [::1]:9093",
            "topic": "_subscriptions",
            "options": {
                **_SASL_OPTIONS,
                "ssl.ca.location": "/run/secrets/tls/ca.crt",
                "ssl.endpoint.identification.algorithm": "",
                "request.timeout.ms": 10_000,
                "client.id": "telemetry",
            },
        },
    },
    "telemetry": {
        "max_bytes": "4 MiB",
        "max_inflated_bytes": "4.2MB",
        "default_interval_ms": "30s",
        "compression": ["gzip", "zstd"],
        "quirks": [
            {"client_software_name": "(?i)librd.*", "client_software_version": " >=v2.5.0 , <2.6"},
            {"client_software_name": "a", "client_software_version": "2\\.[0-9]+", "bad_metrics": ["a.*"]},
        ],
        "series": {"client_id_folding": [{"pattern": "(a)(?:b)[(](c)", "replacement": "\\2\\\\-\\0"}]},
    },
    "plugins": [
        {**_OTLP, "delivery": "memory"},
        {
            "type": "otlp",
            "protocol": "http",
            "endpoints": ["https://collector/v1/a", "https://[fd00::1]:4318"],
            "tls": {},
            "delivery": "memory",
            "headers": {"x-scope-orgid": "tenant"},
        },
        {"type": "prometheus", "remote_write": _WRITE, "delivery": "memory", "resource_labels": ["zone"]},
        {**_KAFKA, "bootstrap_servers": "a:9092, [::1]:9093", "delivery": "memory"},
        {"type": "console", "spool": {"path": "../spool", "max_bytes": 1_048_576}, "name": "otlp"},
    ],
}


def rules() -> set[str]:
    """Every function by which the settings of the receiver and of its plugins refuse a value."""
    types = installed_types()
    models: list[type[BaseModel]] = [ReceiverSettings, HostSettings]
    models += [types[name].load().Config for name in BUILT_IN]
    return set(_rules(models))


def _rules(models: list[type[BaseModel]]) -> Iterator[str]:
    seen: set[type[BaseModel]] = set()
    while models:
        model = models.pop()
        if model in seen:
            continue
        seen.add(model)
        decorators = model.__pydantic_decorators__
        for name in (*decorators.field_validators, *decorators.model_validators):
            yield f"{_owner(model, name)}.{name}"
        for annotation in get_type_hints(model, include_extras=True).values():
            yield from _of_annotation(annotation, models)


def _owner(model: type[BaseModel], name: str) -> str:
    """The class that defines a validator, which its subclasses have too."""
    return next(base.__name__ for base in reversed(model.__mro__) if name in vars(base))


def _of_annotation(annotation: Any, models: list[type[BaseModel]]) -> Iterator[str]:
    if annotation in (HostPort, HostPorts):
        yield annotation.__name__
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        models.append(annotation)
    if get_origin(annotation) is Annotated:
        yield from (one.func.__name__ for one in annotation.__metadata__ if isinstance(one, AfterValidator))
    for inner in get_args(annotation):
        yield from _of_annotation(inner, models)
