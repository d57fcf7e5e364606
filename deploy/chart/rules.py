"""JSON schema keywords for the rules of the settings that are functions.

A generated schema has a setting's type, bounds and choices, but not what a validator checks. The
keywords here say it again. ``tests/helm/mistakes.py`` has a mistake for each validator, and the
chart must refuse it, by these keywords or by ``templates/_config.tpl``.
"""

from __future__ import annotations

from typing import Any, Final

from plugins._shared.destination import PROTOCOL_HEADERS
from plugins.prometheus.trust import ATTRIBUTE_PREFIX, PROMETHEUS_LABELS
from receiver.settings.kafka_options import CHOICES, FROM_FILES, OPTIONS

Keywords = dict[str, Any]

_NULL: Final[Keywords] = {"type": "null"}
_REGEX: Final[Keywords] = {"format": "regex"}
_DIGITS: Final = "6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_PORT: Final = f"([1-9][0-9]{{0,3}}|[1-5][0-9]{{4}}|{_DIGITS})"
_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
#: Helm shows a value that does not match. One with these characters may hold a secret, so the
#: chart's templates refuse it instead, without its value.
_LEAK: Final = "[@?#]"
_FILE: Final[Keywords] = {
    "type": "object",
    "properties": {"file": {"type": "string", "pattern": "^/"}},
    "required": ["file"],
    "additionalProperties": False,
}
_ABSOLUTE: Final[Keywords] = {"anyOf": [{"type": "string", "pattern": "^/"}, _NULL]}
_GRPC: Final = f"^https?://{_HOST}:{_PORT}/?$|{_LEAK}"
_HTTP: Final = f'^https?://{_HOST}(:{_PORT})?(/[!"$->A-~]*)?$|{_LEAK}'
_HTTP_WITH_PATH: Final = f'^https?://{_HOST}(:{_PORT})?/[!"$->A-~]+$|{_LEAK}'
_SERVER: Final = f"{_HOST}:{_PORT}"
_SERVERS: Final = rf"^\s*{_SERVER}\s*(,\s*{_SERVER}\s*)*$|@"
_BOUND: Final = r"\s*(>=|<=|==|=|>|<)\s*v?[0-9]{1,9}(\.[0-9]{1,9}){0,7}\s*"
#: A path that is not the working folder.
_FOLDER: Final[Keywords] = {"pattern": r"[^./]|^/|\.\."}
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


def _given(key: str, **keywords: Any) -> Keywords:
    """A condition: the key is there, and its value is so."""
    return {"required": [key], "properties": {key: keywords}}


def _properties(**properties: Any) -> Keywords:
    return {"properties": properties}


def _without(*keys: str) -> Keywords:
    """The keys are absent or null: this makes a readable error, which ``not`` does not."""
    return _properties(**dict.fromkeys(keys, _NULL))


def _with(*keys: str, without: tuple[str, ...] = ()) -> Keywords:
    return {"required": list(keys)} | (_without(*without) if without else {})


def _if(condition: Keywords, then: Keywords, otherwise: Keywords | None = None) -> Keywords:
    return {"if": condition, "then": then} | ({} if otherwise is None else {"else": otherwise})


def _headers(*reserved: str, **patterns: Any) -> Keywords:
    return {
        "propertyNames": {"pattern": "^[a-z0-9!#$%&'*+.^_`|~-]+$"},
        "properties": dict.fromkeys(sorted({*PROTOCOL_HEADERS, *reserved}), _NULL),
        **patterns,
    }


def _https(*keys: str) -> Keywords:
    """With ``tls``, the URLs of these keys are ``https://``."""
    secure = {"pattern": "^https://", "items": {"pattern": "^https://"}}
    return _if(_given("tls", type="object"), _properties(**dict.fromkeys(keys, secure)))


_PAIR: Final[Keywords] = {"dependencies": {"cert_file": ["key_file"], "key_file": ["cert_file"]}}
_CLIENT_CA: Final[Keywords] = _if(
    _given("client_auth", enum=["requested", "required"]),
    _with("client_ca_file"),
    _without("client_ca_file"),
)
_COMPRESSION: Final[Keywords] = _properties(compression={"uniqueItems": True})

_OPTIONS: Final[list[Keywords]] = [
    {
        "propertyNames": {"enum": list(OPTIONS)},
        "additionalProperties": {"type": "string"},
        "properties": {name: {"enum": list(known)} for name, known in CHOICES.items()}
        | {name: {"anyOf": [{"type": "string"}, _FILE]} for name in FROM_FILES}
        | {"request.timeout.ms": {"type": "integer", "minimum": 1000, "maximum": 60_000}},
    },
    *(
        _if(_with(key), _without(other))
        for key, other in (
            ("sasl.mechanism", "sasl.mechanisms"),
            ("ssl.ca.location", "ssl.truststore.location"),
            ("ssl.certificate.location", "ssl.keystore.location"),
        )
    ),
    _if(
        _given("security.protocol", enum=list(_SASL)),
        {
            "anyOf": [_with("sasl.mechanism"), _with("sasl.mechanisms")],
            **_if(_with("sasl.jaas.config"), {}, _with("sasl.username", "sasl.password")),
        },
        _without(*(name for name in OPTIONS if name.startswith("sasl."))),
    ),
]

#: Keywords by the name of a shape; each is one more branch of its ``allOf``.
RULES: Final[dict[str, tuple[Keywords, ...]]] = {
    "receiver.TlsSettings": (_CLIENT_CA,),
    "receiver.RestTlsSettings": (_CLIENT_CA,),
    "receiver.UpstreamTlsSettings": (_PAIR,),
    "receiver.TokenSettings": (_if(_with("sha256"), _without("file"), _with("file")),),
    "receiver.RestSettings": (
        _if(
            _given("clients", minItems=1),
            {
                "required": ["tls"],
                "properties": {"tls": _given("client_auth", enum=["requested", "required"])},
            },
        ),
    ),
    "receiver.SubscriptionStoreSettings": (
        _if(_given("store", const="file"), _with("path") | _properties(path={"type": "string"})),
        _if(
            _given("store", const="kafka"),
            _with("kafka") | _properties(kafka={"type": "object"}),
            _without("kafka"),
        ),
    ),
    "receiver.KafkaStoreSettings": (
        _properties(bootstrap_servers={"pattern": _SERVERS}, options={"allOf": _OPTIONS}),
    ),
    "receiver.TelemetrySettings": (_COMPRESSION,),
    "receiver.QuirkSettings": (
        _COMPRESSION,
        _properties(
            client_software_name=_REGEX,
            client_software_version=_if(
                {"pattern": r"^\s*[<>=]"},
                {"pattern": f"^{_BOUND}(,{_BOUND})*$"},
                _REGEX,
            ),
            bad_metrics={"items": _REGEX},
        ),
    ),
    "receiver.ClientIdFoldingSettings": (_properties(pattern=_REGEX),),
    "receiver.PrivacyRuleSettings": (
        _properties(attribute=_REGEX, metric=_REGEX),
        _if(
            _with("metric"),
            _properties(attribute=_NULL, action={"enum": ["drop"]}),
            _with("attribute"),
        ),
    ),
    "receiver.PrivacySettings": (
        _if(_given("pseudonymize", minItems=1), _with("key")),
        _if(_given("rules", contains=_given("action", const="hash")), _with("key")),
    ),
    "plugin.SpoolSettings": (_properties(path=_FOLDER),),
    "plugin.spool_files": (_properties(path=_FOLDER),),
    "plugin.otlp": (
        _if(_with("endpoints"), _without("endpoint"), _with("endpoint")),
        _if(
            _given("protocol", const="http"),
            _properties(endpoint={"pattern": _HTTP}, endpoints={"items": {"pattern": _HTTP}}),
            _properties(endpoint={"pattern": _GRPC}, endpoints={"items": {"pattern": _GRPC}}),
        ),
        _https("endpoint", "endpoints"),
        _properties(
            endpoints={"uniqueItems": True},
            headers=_headers(patternProperties={"^grpc-|-bin$": _NULL}),
        ),
    ),
    "otlp.TlsConfig": (_PAIR,),
    "kafka_topic.TlsConfig": (_PAIR,),
    "prometheus.TlsConfig": (_PAIR,),
    "plugin.kafka_topic": (
        _properties(
            bootstrap_servers={"pattern": _SERVERS},
            topic={"allOf": [{"pattern": "^[A-Za-z0-9._-]{1,249}$"}, {"pattern": r"[^.]|\.{3}"}]},
        ),
        _if(_given("security_protocol", enum=["SSL", "SASL_SSL"]), {}, _without("tls")),
        _if(
            _given("security_protocol", enum=list(_SASL)),
            _with("sasl_mechanism"),
            _without("sasl_mechanism", "sasl_username", "sasl_password", "oauth"),
        ),
        _if(
            _given("sasl_mechanism", const="OAUTHBEARER"),
            _with("oauth", without=("sasl_username", "sasl_password")),
        ),
        _if(
            _given("sasl_mechanism", enum=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
            {
                "required": ["sasl_username", "sasl_password"],
                "properties": {"sasl_username": {"type": "string", "minLength": 1}, "oauth": _NULL},
            },
        ),
    ),
    "kafka_topic.OAuthConfig": (
        _properties(token_endpoint_url={"pattern": "^https?://[^/?#@]+([/?#].*)?$|@"}),
    ),
    "rollup.MetricsSettings": (
        _if(_given("web_config_file", type="string"), _with("bind")),
        _properties(bind={"pattern": f"^.+:{_PORT}$"}, web_config_file=_ABSOLUTE),
    ),
    "plugin.prometheus": (
        _if(_with("bind"), {}, _with("remote_write")),
        _properties(
            bind={"pattern": f"^.+:{_PORT}$"},
            web_config_file=_ABSOLUTE,
            resource_labels={
                "items": {
                    "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$",
                    "not": {
                        "anyOf": [
                            {"pattern": f"^(__|exported_|{ATTRIBUTE_PREFIX})"},
                            {"enum": sorted(PROMETHEUS_LABELS)},
                        ]
                    },
                }
            },
            allowed_hosts={"items": {"pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$"}},
        ),
    ),
    "prometheus.RemoteWriteConfig": (
        _properties(url={"pattern": _HTTP_WITH_PATH}, headers=_headers("x-prometheus-remote-write-version")),
        _https("url"),
    ),
}


def with_rule(name: str, shape: Keywords) -> Keywords:
    """Return a shape with its rules."""
    rules = RULES.get(name, ())
    return shape | {"allOf": [*shape.get("allOf", ()), *rules]} if rules else shape
