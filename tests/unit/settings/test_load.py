"""Loading: precedence, environment variables, and the error of each wrong key and value."""

from pathlib import Path

import pytest

from receiver.settings.broker import SecretFileSettings
from receiver.settings.errors import SettingsError
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.load import load
from spark_streaming.files import MAX_CONFIGURATION_BYTES

ISSUE_EXAMPLE = """
broker: {id: 1, cluster_id: null}            # null: asked from the broker
listeners:
  - {name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}
subscriptions: {store: sqlite, path: ./subscriptions.db}
rest: {bind: "127.0.0.1:8642"}
telemetry: {max_bytes: 1048576, max_inflated_bytes: 2097152, compression: [zstd, lz4, gzip, snappy]}
plugins:
  - {type: otlp, endpoint: "http://127.0.0.1:4317", protocol: grpc}
"""

#: The SHA-256 of nothing.
DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

MINIMAL = """
broker: {id: 1}
listeners:
  - {name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "receiver.yaml"
    path.write_text(text)
    return path


def failure(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(write(folder, text), environ or {})
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_the_documented_example_loads(tmp_path: Path) -> None:
    settings = load(write(tmp_path, ISSUE_EXAMPLE), {})
    assert settings.broker.id == 1
    assert settings.broker.cluster_id is None
    assert settings.listeners[0].bind == HostPort(host="127.0.0.1", port=19092)
    assert settings.listeners[0].upstream == HostPorts.parse("127.0.0.1:29092")
    assert settings.subscriptions.path == Path("./subscriptions.db")
    assert settings.rest.bind == HostPort(host="127.0.0.1", port=8642)
    assert settings.telemetry.compression == ("zstd", "lz4", "gzip", "snappy")
    assert settings.plugins == ({"type": "otlp", "endpoint": "http://127.0.0.1:4317", "protocol": "grpc"},)


def test_sizes_and_times_take_units(tmp_path: Path) -> None:
    text = (
        'listeners: [{name: A, bind: "a:1", upstream: "b:1"}]\n'
        "telemetry: {max_bytes: 2MiB, max_inflated_bytes: 4MiB, default_interval_ms: 30s}\n"
        "limits: {principal: {accepted_bytes_per_minute: 64MiB}}\n"
    )
    settings = load(write(tmp_path, text), {"KAFKA_TELEMETRY_DRAIN__TIMEOUT_S": "1500ms"})
    assert (settings.telemetry.max_bytes, settings.telemetry.default_interval_ms) == (2_097_152, 30_000)
    assert settings.limits.principal.accepted_bytes_per_minute == 67_108_864
    assert settings.drain.timeout_s == 1.5


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            "telemetry: {max_byte: 5}",
            "receiver.yaml: telemetry.max_byte: unknown key; did you mean max_bytes?",
        ),
        (
            "zzz: 1",
            "receiver.yaml: zzz: unknown key; known are broker, gateway, listeners, bridge, subscriptions, "
            "rest, cluster, rollup, owners, telemetry, limits, kip1313, plugins, usage, drain, log, debug",
        ),
        (
            "telemetry: {max_bytes: lots}",
            'receiver.yaml: telemetry.max_bytes: "lots": expected an integer, 1024 to 104857600, or text '
            "with a unit such as 64MiB",
        ),
        (
            'telemetry: {max_bytes: "1048576"}',
            'receiver.yaml: telemetry.max_bytes: "1048576": expected an integer, 1024 to 104857600, or text '
            "with a unit such as 64MiB",
        ),
        (
            "telemetry: {max_bytes: true}",
            "receiver.yaml: telemetry.max_bytes: true: expected an integer, 1024 to 104857600",
        ),
        (
            "telemetry: {max_bytes: 1}",
            "receiver.yaml: telemetry.max_bytes: 1: expected an integer, 1024 to 104857600",
        ),
        (
            "telemetry: {max_bytes: 4096, max_inflated_bytes: 2048}",
            "receiver.yaml: telemetry.max_inflated_bytes: 2048: "
            "must not be less than telemetry.max_bytes (4096)",
        ),
        (
            "telemetry: {compression: [zstd, brotli]}",
            'receiver.yaml: telemetry.compression[1]: "brotli": expected one of gzip, snappy, lz4, zstd',
        ),
        (
            "telemetry: {compression: [zstd, zstd]}",
            "receiver.yaml: telemetry.compression: a codec is given twice",
        ),
        ("telemetry: 5", "receiver.yaml: telemetry: expected a mapping"),
        ("telemetry: null", "receiver.yaml: telemetry: null: expected a mapping"),
        (
            'telemetry: {quirks: [{client_software_name: "a("}]}',
            'receiver.yaml: telemetry.quirks[0].client_software_name: "a(": not a regular expression (RE2): '
            "missing ): a(",
        ),
        (
            "telemetry: {series: {client_id_folding: [{pattern: 'a', replacement: '\\1'}]}}",
            'receiver.yaml: telemetry.series.client_id_folding[0].replacement: "\\\\1": \\1 names a group, '
            "but the pattern has no group",
        ),
        (
            "telemetry: {quirks: [{}]}",
            "receiver.yaml: telemetry.quirks[0].client_software_name: required: text",
        ),
        (
            'rest: {bind: "0.0.0.0:8642"}',
            'receiver.yaml: rest.bind: "0.0.0.0:8642": it can be reached from other machines and '
            "requires authentication: add tokens: [{name: ops, role: editor, sha256: ...}] (see "
            "`kafka-telemetry token new`), or bind to this machine only with 127.0.0.1:8642, [::1]:8642 or "
            "localhost:8642",
        ),
        (
            "rest: {tokens: [{name: ops, role: editor}]}",
            "receiver.yaml: rest.tokens[0]: no token: set sha256 to its digest, or file to the file "
            "that holds it",
        ),
        (
            f"rest: {{tokens: [{{name: ops, role: editor, sha256: '{DIGEST}', file: token}}]}}",
            "receiver.yaml: rest.tokens[0]: sha256 and file are both given: omit one of them",
        ),
        (
            "rest: {tokens: [{name: ops, role: admin, file: token}]}",
            'receiver.yaml: rest.tokens[0].role: "admin": expected one of viewer, editor',
        ),
        (
            "rest: {tokens: [{name: a, role: viewer, file: x}, {name: a, role: editor, file: y}]}",
            'receiver.yaml: rest.tokens[1].name: "a": the same as tokens[0].name; the audit log needs '
            "distinct names",
        ),
        (
            'rest: {clients: [{name: ops, role: viewer, subject: "CN=ops"}]}',
            "receiver.yaml: rest.clients: no caller is asked for a certificate, because tls is not given: "
            "set tls: {cert_file: server.crt, key_file: server.key, client_ca_file: ca.pem, "
            "client_auth: required}",
        ),
        (
            'rest: {tls: {cert_file: c, key_file: k}, clients: [{name: a, role: viewer, subject: "CN=a"}]}',
            "receiver.yaml: rest.clients: no caller is asked for a certificate, because tls.client_auth is "
            "none: set tls: {cert_file: server.crt, key_file: server.key, client_ca_file: ca.pem, "
            "client_auth: required}",
        ),
        (
            "rest: {tls: {cert_file: c, key_file: k, client_auth: required}}",
            'receiver.yaml: rest.tls.client_auth: "required": client_ca_file is required: the CA\'s PEM '
            "file that verifies client certificates",
        ),
        (
            "rest: {open: [metric]}",
            'receiver.yaml: rest.open[0]: "metric": expected one of livez, readyz, metrics',
        ),
        (
            "limits: {principal: {connections: 0}}",
            "receiver.yaml: limits.principal.connections: 0: expected an integer or null, 1 to 1000000000",
        ),
        (
            "limits: {principals: {}}",
            "receiver.yaml: limits.principals: unknown key; did you mean principal?",
        ),
        (
            'kip1313: {translate_all: "yes"}',
            'receiver.yaml: kip1313.translate_all: "yes": expected true or false',
        ),
        (
            "telemetry: {privacy: {rules: [{action: drop}]}}",
            "receiver.yaml: telemetry.privacy.rules[0]: a rule must have either `attribute` or `metric`",
        ),
        (
            "telemetry: {privacy: {rules: [{metric: a, attribute: b, action: drop}]}}",
            "receiver.yaml: telemetry.privacy.rules[0]: a rule must have either `attribute` or `metric`",
        ),
        (
            "telemetry: {privacy: {rules: [{metric: a, action: hash}]}}",
            "receiver.yaml: telemetry.privacy.rules[0]: a metric can only be dropped: set action: drop, or "
            "give an attribute",
        ),
        (
            "telemetry: {privacy: {rules: [{attribute: a, action: hash}]}}",
            "receiver.yaml: telemetry.privacy: key is required, because a rule hashes or "
            "`pseudonymize` is set",
        ),
        (
            "telemetry: {privacy: {pseudonymize: [principal]}}",
            "receiver.yaml: telemetry.privacy: key is required, because a rule hashes or "
            "`pseudonymize` is set",
        ),
        (
            "telemetry: {series: {client_id_folding: [{pattern: '(', replacement: a}]}}",
            'receiver.yaml: telemetry.series.client_id_folding[0].pattern: "(": not a regular expression '
            "(RE2): missing ): (",
        ),
        (
            'rest: {bind: "127.0.0.1:19092"}',
            'receiver.yaml: rest.bind: "127.0.0.1:19092": listeners[0] listens on 127.0.0.1:19092 already',
        ),
        (
            "rest: {bind: 8642}",
            "receiver.yaml: rest.bind: 8642: expected host:port, for example 127.0.0.1:19092",
        ),
        ("drain: {timeout_s: -1}", "receiver.yaml: drain.timeout_s: -1: expected a number, 0 to 600"),
        ("drain: {timeout_s: .inf}", "receiver.yaml: drain.timeout_s: a number must be finite"),
        ("plugins: [{type: a, b: {c: .nan}}]", "receiver.yaml: plugins[0].b.c: a number must be finite"),
        ("log: !!set {a, b}", "receiver.yaml: log: a value of type set is not plain YAML"),
        (
            "log: {level: loud}",
            'receiver.yaml: log.level: "loud": expected one of debug, info, warning, error',
        ),
        ("log: {requests: 1}", "receiver.yaml: log.requests: 1: expected true or false"),
        ("log: {}\nlog: {}", "receiver.yaml: line 6, column 1: log: the key is given twice"),
        ("x: {tags: 1, tags: 2}", "receiver.yaml: line 5, column 14: tags: the key is given twice"),
        ("log: {5: 6}", "receiver.yaml: line 5, column 7: a key must be text"),
        (
            "plugins: [{endpoint: secret-value}]",
            "receiver.yaml: plugins[0]: `type` is required: the plugin's name, for example otlp or console",
        ),
        ("plugins: [hunter2]", "receiver.yaml: plugins[0]: expected a mapping"),
        (
            "subscriptions: {store: redis}",
            'receiver.yaml: subscriptions.store: "redis": expected one of sqlite, file, kafka',
        ),
        (
            "subscriptions: {store: kafka}",
            "receiver.yaml: subscriptions: kafka: required with store: kafka; set kafka: {bootstrap_servers: "
            '"127.0.0.1:29093"} to a listener of the brokers',
        ),
        (
            "subscriptions: {kafka: {bootstrap_servers: 'a:1'}}",
            "receiver.yaml: subscriptions: kafka: has no effect with store: sqlite; set store: kafka, or "
            "omit it",
        ),
        (
            "subscriptions: {store: kafka, kafka: {bootstrap_servers: a, options: {}}}",
            'receiver.yaml: subscriptions.kafka.bootstrap_servers: "a": expected host:port, for example '
            "127.0.0.1:19092",
        ),
        (
            "subscriptions: {store: kafka, kafka: {bootstrap_servers: 'a:1', options: {sasl.passwort: "
            "hunter2}}}",
            "receiver.yaml: subscriptions.kafka.options: sasl.passwort: unknown option; did you mean "
            "sasl.password?",
        ),
        (
            "subscriptions: {store: file}",
            "receiver.yaml: subscriptions: path: required with store: file; set it to the folder of YAML "
            "files, for example path: ./subscriptions.d",
        ),
        (
            "log: {level: 'a\nb'}",
            'receiver.yaml: log.level: "a b": expected one of debug, info, warning, error',
        ),
        (
            'log: {"a\\nb": 1}',
            "receiver.yaml: log.'a\\nb': unknown key; known are level, format, requests",
        ),
    ],
)
def test_one_line_names_the_key_the_value_and_the_fix(tmp_path: Path, change: str, line: str) -> None:
    assert failure(tmp_path, MINIMAL + change) == line


@pytest.mark.parametrize(
    ("listeners", "line"),
    [
        (
            '[{name: A, bind: "127.0.0.1", upstream: "b:1"}]',
            'listeners[0].bind: "127.0.0.1": expected host:port, for example 127.0.0.1:19092',
        ),
        (
            '[{name: A, bind: "::1:5", upstream: "b:1"}]',
            'listeners[0].bind: "::1:5": write an IPv6 address in brackets, for example [::1]:19092',
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:0"}]',
            'listeners[0].upstream: "b:0": the port of the broker\'s listener cannot be 0',
        ),
        ('[{name: A, bind: "a:1"}]', "listeners[0].upstream: required: host:port"),
        ("[]", "listeners: required: a list of mappings, one for each listener; or `bridge`"),
        (
            '[{name: A, bind: "a:1", upstream: "b:1"}, {name: A, bind: "a:2", upstream: "b:2"}]',
            'listeners[1].name: "A": the name of listeners[0] too',
        ),
        (
            '[{name: A, bind: "127.0.0.1:1", upstream: "b:1"}, '
            '{name: B, bind: "0.0.0.0:1", upstream: "b:2"}]',
            'listeners[1].bind: "0.0.0.0:1": listeners[0] listens on 127.0.0.1:1 already',
        ),
        (
            '[{name: A, bind: "a:1", upstream: "a:1"}]',
            'listeners[0].upstream: "a:1": the listener\'s own bind; '
            "give the address of the broker's listener",
        ),
        (
            '[{name: "A B", bind: "a:1", upstream: "b:1"}]',
            'listeners[0].name: "A B": must match ^[A-Za-z0-9_.-]{1,249}$',
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: TLS}]',
            'listeners[0].security_protocol: "TLS": expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL',
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: SASL_SSL}]',
            'listeners[0].security_protocol: "SASL_SSL": `tls` is required: '
            "tls: {cert_file: server.crt, key_file: server.key}",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", tls: {cert_file: c, key_file: k}}]',
            "listeners[0].tls: security_protocol is PLAINTEXT: set it to SSL, or omit `tls`",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: SSL, tls: {cert_file: c}}]',
            "listeners[0].tls.key_file: required: a path",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: SSL, '
            "tls: {cert_file: c, key_file: k, client_auth: requested}}]",
            'listeners[0].tls.client_auth: "requested": client_ca_file is required: the CA\'s PEM file '
            "that verifies client certificates",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: SSL, '
            "tls: {cert_file: c, key_file: k, min_version: 1.1}}]",
            'listeners[0].tls.min_version: "1.1": expected one of 1.2, 1.3',
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", upstream_tls: {key_file: k}}]',
            "listeners[0].upstream_tls: cert_file and key_file belong together: set both or neither",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", upstream_tls: {certificate: k, cert_file: k, key: k}}]',
            "listeners[0].upstream_tls.certificate: unknown key; write cert_file",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", upstream_tls: {ca: k, ca_file: k}}]',
            "listeners[0].upstream_tls.ca: unknown key; write ca_file",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", '
            "broker: {login: {username: a, password: {file: b}, password_file: b}}}]",
            "listeners[0].broker.login.password_file: unknown key; write password: {file: PATH}",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", broker: {login: {username: a, password: b}}}]',
            "listeners[0].broker.login.password: a password as text is not taken: write it into a file, and "
            "give {file: PATH}",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", proxy_protocol: {}}]',
            "listeners[0].proxy_protocol.from: required: a list of texts",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", proxy_protocol: {from: [lan]}}]',
            'listeners[0].proxy_protocol.from[0]: "lan": not a network such as 10.0.0.0/8 or fd00::/8: '
            "'lan' does not appear to be an IPv4 or IPv6 network",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", proxy_protocol: {from: ["10.0.0.1/8"]}}]',
            'listeners[0].proxy_protocol.from[0]: "10.0.0.1/8": not a network such as 10.0.0.0/8 or '
            "fd00::/8: 10.0.0.1/8 has host bits set",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", principal_mapping_rules: "RULE:^CN=(.*$/$1/"}]',
            "listeners[0].principal_mapping_rules: \"RULE:^CN=(.*$/$1/\": rule 1, 'RULE:^CN=(.*$/$1/': "
            "the pattern is no RE2 expression (missing ): ^CN=(.*$); write it without look-around, "
            "possessive repetition and back references",
        ),
        (
            '[{name: A, bind: "a:1", upstream: "b:1", handshake_timeout_ms: 0}]',
            "listeners[0].handshake_timeout_ms: 0: expected an integer, 1 to 600000",
        ),
    ],
)
def test_a_wrong_listener_is_named(tmp_path: Path, listeners: str, line: str) -> None:
    assert failure(tmp_path, f"broker: {{id: 1}}\nlisteners: {listeners}") == f"receiver.yaml: {line}"


def test_one_slow_reader_must_have_room(tmp_path: Path) -> None:
    text = """\
broker: {id: 1}
listeners: [{name: A, bind: "a:1", upstream: "b:1", socket_buffer_bytes: BUFFER}]
limits: {max_held_bytes: 4000000}
"""
    assert failure(tmp_path, text.replace("BUFFER", "196608")) == (
        "receiver.yaml: limits.max_held_bytes: 4000000: one source address may use a quarter of it, "
        "but one slow reader takes 1048576: set it to at least 4194304, or lower "
        "listeners[0].socket_buffer_bytes (196608)"
    )
    file = tmp_path / "receiver.yaml"
    file.write_text(text.replace("BUFFER", "131072"))
    assert load(file, {}).limits.max_held_bytes == 4_000_000


def test_two_listeners_may_leave_their_ports_to_the_system(tmp_path: Path) -> None:
    listeners = '[{name: A, bind: "a:0", upstream: "b:1"}, {name: B, bind: "a:0", upstream: "b:2"}]'
    text = f"broker: {{id: 1}}\nlisteners: {listeners}"
    assert len(load(write(tmp_path, text), {}).listeners) == 2


def test_earlier_names_of_tls_files_and_of_secrets_are_taken(tmp_path: Path) -> None:
    listener = (
        '{name: A, bind: "a:1", upstream: "b:1", security_protocol: SSL, '
        "tls: {certificate: c, key: k, client_ca: a, client_auth: required, "
        "server_names: [{name: kafka, certificate: s, key: t}]}, upstream_tls: {ca: u}, "
        "broker: {login: {username: v, password_file: w}}}"
    )
    file = tmp_path / "receiver.yaml"
    file.write_text(
        f"listeners: [{listener}]\nsubscriptions: {{store: sqlite, path: s.db}}\n"
        "telemetry: {privacy: {key_file: x}}\n"
    )
    settings = load(file, {})
    assert settings.telemetry.privacy.key == SecretFileSettings(file=Path("x"))
    (loaded,) = settings.listeners
    tls, upstream, broker = loaded.tls, loaded.upstream_tls, loaded.broker
    assert tls is not None
    assert upstream is not None
    assert broker is not None
    assert broker.login is not None
    (name,) = tls.server_names
    files = (tls.cert_file, tls.key_file, tls.client_ca_file, name.cert_file, name.key_file, upstream.ca_file)
    assert [path and path.name for path in (*files, broker.login.password.file)] == list("ckastuw")


def test_a_tls_version_needs_no_quotes(tmp_path: Path) -> None:
    listeners = (
        '[{name: A, bind: "a:1", upstream: "b:1", security_protocol: SSL, '
        'tls: {cert_file: c, key_file: k, min_version: 1.3}, upstream_tls: {min_version: "1.2"}}]'
    )
    (listener,) = load(write(tmp_path, f"broker: {{id: 1}}\nlisteners: {listeners}"), {}).listeners
    assert listener.tls is not None
    assert listener.upstream_tls is not None
    assert (listener.tls.min_version, listener.upstream_tls.min_version) == ("1.3", "1.2")


@pytest.mark.parametrize("token", ["hunter2", "'4711'", "4711", "[hunter2]", f"'{DIGEST.upper()}'"])
def test_a_token_in_place_of_its_digest_is_not_shown(tmp_path: Path, token: str) -> None:
    text = MINIMAL + f"rest: {{tokens: [{{name: ops, role: editor, sha256: {token}}}]}}"
    problem = (
        "sha256: expected the token's digest, 64 digits 0-9 and a-f in quotes, as printed by "
        'printf %s "$TOKEN" | sha256sum'
    )
    assert failure(tmp_path, text) == f"receiver.yaml: rest.tokens[0]: {problem}"
    tokens = "KAFKA_TELEMETRY_REST__TOKENS__0__"
    variables = {f"{tokens}NAME": "ops", f"{tokens}ROLE": "editor", f"{tokens}SHA256": token}
    assert failure(tmp_path, MINIMAL, variables).endswith(problem)


@pytest.mark.parametrize("tokens", ["hunter2", "[hunter2]", "4711", "[4711]"])
def test_a_token_in_place_of_its_entry_is_not_shown(tmp_path: Path, tokens: str) -> None:
    kind = (
        "rest.tokens[0]: expected a mapping" if "[" in tokens else "rest.tokens: expected a list of mappings"
    )
    assert failure(tmp_path, MINIMAL + f"rest: {{tokens: {tokens}}}") == f"receiver.yaml: {kind}"
    variable = failure(tmp_path, MINIMAL, {"KAFKA_TELEMETRY_REST__TOKENS": tokens})
    assert tokens.strip("[]") not in variable
    assert failure(tmp_path, MINIMAL + "rest: hunter2") == "receiver.yaml: rest: expected a mapping"


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    missing = "receiver.yaml: listeners: required: a list of mappings, one for each listener; or `bridge`"
    assert failure(tmp_path, "log: {}") == missing
    assert failure(tmp_path, "") == missing
    assert failure(tmp_path, "brokr: {id: 1}") == "receiver.yaml: brokr: unknown key; did you mean broker?"


def test_a_file_that_is_not_a_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path / "absent.yaml", {})
    assert str(caught.value) == f"{tmp_path}/absent.yaml: cannot be read: No such file or directory"
    assert failure(tmp_path, "- 1") == (
        "receiver.yaml: expected a mapping of keys such as broker, listeners and plugins"
    )
    assert failure(tmp_path, "broker: {id: 1").startswith("receiver.yaml: line 1, column 15: ")
    assert failure(tmp_path, "broker: !!python/name:os.system {}").startswith(
        "receiver.yaml: line 1, column 9: "
    )
    assert failure(tmp_path, "#" * (MAX_CONFIGURATION_BYTES + 1)).endswith(
        "receiver.yaml: is larger than 1048576 bytes: check that it is the right file"
    )
    path = tmp_path / "receiver.yaml"
    path.write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(SettingsError) as caught:
        load(path, {})
    assert str(caught.value) == "receiver.yaml: not YAML text"


def test_anchors_cannot_make_a_small_file_huge(tmp_path: Path) -> None:
    layers = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9))
    assert failure(tmp_path, f"x0: &x0 [a]\n{layers}") == (
        "receiver.yaml: x8: more than 100000 values in the whole document"
    )
    assert failure(tmp_path, "x: &x [*x]") == "receiver.yaml: x[0][0]: nested more than 32 deep"


@pytest.mark.parametrize(
    "password", ["*hunter2", "!hunter2", "!hunter2!x", "&hunter2 !x!", "%hunter2", "@hunter2"]
)
def test_a_password_that_looks_like_yaml_syntax_is_not_shown(tmp_path: Path, password: str) -> None:
    text = f"plugins: [{{type: otlp, headers: {{a: {password}}}}}]"
    line = failure(tmp_path, MINIMAL + text)
    assert line.startswith("receiver.yaml: line 5, column ")
    assert "hunter2" not in line
    line = failure(tmp_path, MINIMAL, {"KAFKA_TELEMETRY_PLUGINS": text.removeprefix("plugins: ")})
    assert line.startswith("environment: KAFKA_TELEMETRY_PLUGINS: expected JSON or YAML text: ")
    assert "hunter2" not in line


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    settings = load(
        write(tmp_path, ISSUE_EXAMPLE),
        {
            "PATH": "/bin",
            "KAFKA_TELEMETRY_BROKER__ID": "2",
            "KAFKA_TELEMETRY_BROKER__CLUSTER_ID": "123",
            "KAFKA_TELEMETRY_LISTENERS__0__BIND": "[::1]:19093",
            "KAFKA_TELEMETRY_LISTENERS__1__NAME": "OTHER",
            "KAFKA_TELEMETRY_LISTENERS__1__BIND": "127.0.0.1:19094",
            "KAFKA_TELEMETRY_LISTENERS__1__UPSTREAM": "broker-1.internal:9094",
            "KAFKA_TELEMETRY_TELEMETRY__COMPRESSION": '["gzip"]',
            "KAFKA_TELEMETRY_TELEMETRY__QUIRKS": '[{client_software_name: "a"}]',
            "KAFKA_TELEMETRY_TELEMETRY__QUIRKS__0__CLIENT_SOFTWARE_NAME": "[a-z]+",
            "KAFKA_TELEMETRY_DRAIN__TIMEOUT_S": "1.5",
            "KAFKA_TELEMETRY_LOG__REQUESTS": "true",
            "KAFKA_TELEMETRY_PLUGINS__0__ENDPOINT": "http://collector:4317",
            "KAFKA_TELEMETRY_PLUGINS__0__HEADERS": '{"authorization": {"file": "/run/token"}}',
            "KAFKA_TELEMETRY_PLUGINS__0__HEADERS__X_TENANT": '"7"',
            "KAFKA_TELEMETRY_PLUGINS__0__HEADERS__X_TOKEN": "%a: [b #c",
            "KAFKA_TELEMETRY_PLUGINS__0__TIMEOUT_S": "5",
            "KAFKA_TELEMETRY_PLUGINS__0__TLS": "true",
            "KAFKA_TELEMETRY_PLUGINS__0__LIMIT": "NaN",
        },
    )
    assert settings.broker.id == 2
    assert settings.broker.cluster_id == "123"
    assert [str(listener.bind) for listener in settings.listeners] == ["[::1]:19093", "127.0.0.1:19094"]
    assert settings.telemetry.compression == ("gzip",)
    assert settings.telemetry.quirks[0].client_software_name == "[a-z]+"
    assert settings.drain.timeout_s == 1.5
    assert settings.log.requests is True
    assert settings.plugins[0] == {
        "type": "otlp",
        "endpoint": "http://collector:4317",
        "protocol": "grpc",
        "headers": {"authorization": {"file": "/run/token"}, "x_tenant": "7", "x_token": "%a: [b #c"},
        "timeout_s": 5,
        "tls": True,
        "limit": "NaN",
    }


def test_everything_can_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "receiver.yaml"
    file.write_text("")
    settings = load(
        file,
        {
            "KAFKA_TELEMETRY_BROKER": "{id: 3}",
            "KAFKA_TELEMETRY_BROKER__CLUSTER_ID": "null",
            "KAFKA_TELEMETRY_LISTENERS": '[{"name": "A", "bind": "a:1", "upstream": "b:1"}]',
        },
    )
    assert settings.broker.id == 3
    assert settings.broker.cluster_id is None
    assert settings.listeners[0].name == "A"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("BROKER__ID", "one", 'KAFKA_TELEMETRY_BROKER__ID: "one": expected auto or an integer'),
        (
            "BROKER__IDD",
            "1",
            "KAFKA_TELEMETRY_BROKER__IDD: unknown setting; known are KAFKA_TELEMETRY_BROKER__ID, "
            "KAFKA_TELEMETRY_BROKER__CLUSTER_ID",
        ),
        ("BROKER__ID__X", "1", "KAFKA_TELEMETRY_BROKER__ID__X: unknown setting"),
        ("BROKER__", "1", "KAFKA_TELEMETRY_BROKER__: expected keys joined by two underscores"),
        ("LISTENERS__2__NAME", "X", "KAFKA_TELEMETRY_LISTENERS__2__NAME: the next index is 1, not 2"),
        ("LISTENERS__X__NAME", "X", "KAFKA_TELEMETRY_LISTENERS__X__NAME: unknown setting"),
        (
            "DRAIN__TIMEOUT_S",
            ".inf",
            "KAFKA_TELEMETRY_DRAIN__TIMEOUT_S: expected JSON or YAML text: a number must be finite",
        ),
        ("LISTENERS", "[{", "KAFKA_TELEMETRY_LISTENERS: expected JSON or YAML text"),
        (
            "LISTENERS",
            "[{name: A, bind: 5, upstream: 'b:1'}]",
            "KAFKA_TELEMETRY_LISTENERS: [0].bind: 5: expected host:port, for example 127.0.0.1:19092",
        ),
        (
            "PLUGINS__0__ENDPOINT__X",
            "1",
            "KAFKA_TELEMETRY_PLUGINS__0__ENDPOINT__X: "
            "cannot be set inside a value that is not a mapping or a list",
        ),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, text: str, line: str) -> None:
    assert failure(tmp_path, ISSUE_EXAMPLE, {f"KAFKA_TELEMETRY_{name}": text}).startswith(
        f"environment: {line}"
    )


def test_an_unknown_section_is_named(tmp_path: Path) -> None:
    line = failure(tmp_path, MINIMAL, {"KAFKA_TELEMETRY_BROKR__ID": "1"})
    assert line.startswith("environment: KAFKA_TELEMETRY_BROKR__ID: unknown setting; known are ")


def test_variables_of_kubernetes_and_the_command_line_are_ignored(tmp_path: Path) -> None:
    load(
        write(tmp_path, MINIMAL),
        {
            "KAFKA_TELEMETRY_URL": "http://127.0.0.1:8642",
            "KAFKA_TELEMETRY_CONFIG": "receiver.yaml",
            "KAFKA_TELEMETRY_SERVICE_HOST": "10.0.0.1",
            "KAFKA_TELEMETRY_SERVICE_PORT": "8642",
            "KAFKA_TELEMETRY_SERVICE_PORT_REST": "8642",
            "KAFKA_TELEMETRY_PORT": "tcp://10.0.0.1:8642",
            "KAFKA_TELEMETRY_PORT_8642_TCP_ADDR": "10.0.0.1",
            "KAFKA_TELEMETRY_BROKER_0_SERVICE_HOST": "10.0.0.2",
        },
    )


def test_no_message_and_no_repr_shows_a_plugins_settings(tmp_path: Path) -> None:
    settings = load(
        write(tmp_path, MINIMAL + "plugins: [{type: otlp, headers: {authorization: hunter2}}]"), {}
    )
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in failure(tmp_path, MINIMAL + "plugins: [{headers: hunter2}]")
    assert "hunter2" not in failure(tmp_path, MINIMAL, {"KAFKA_TELEMETRY_PLUGINS__0": "hunter2"})
    assert "hunter2" not in failure(tmp_path, MINIMAL + "pasword: hunter2")


def test_text_that_is_not_unicode_is_named_without_other_values(tmp_path: Path) -> None:
    plugins = "plugins: [{headers: {authorization: hunter2}, type: otlp}]\n"
    broken = 'subscriptions: {path: "\\uD800"}\n'
    problem = "not Unicode: half of a surrogate pair, or a byte that is not UTF-8"
    assert failure(tmp_path, plugins + MINIMAL + broken) == f"receiver.yaml: subscriptions.path: {problem}"
    name = "KAFKA_TELEMETRY_BROKER__CLUSTER_ID"
    assert failure(tmp_path, plugins + MINIMAL, {name: "\udcff"}) == f"environment: {name}: {problem}"
    secret = MINIMAL + 'plugins: [{type: otlp, headers: {authorization: "hunter2\\uD800"}}]'
    assert failure(tmp_path, secret) == f"receiver.yaml: plugins[0].headers.authorization: {problem}"


def test_a_deeply_nested_variable_does_not_crash(tmp_path: Path) -> None:
    load(
        write(tmp_path, MINIMAL),
        {"KAFKA_TELEMETRY_PLUGINS__0__ENDPOINT": "[" * 90_000, "KAFKA_TELEMETRY_PLUGINS__0__TYPE": "otlp"},
    )
