"""``config check`` finds every mistake at once, and says where each is."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Run

GOOD = """\
listeners:
  - {name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}
plugins:
  - {type: console}
"""


def check(run: Run, tmp_path: Path, text: str, *options: str) -> tuple[int, list[str]]:
    file = tmp_path / "receiver.yaml"
    file.write_text(text)
    result = run("config", "check", *options, str(file))
    return result.exit_code, [line.removeprefix("kafka-telemetry: ") for line in result.stderr.splitlines()]


def test_all_mistakes_are_told_with_their_places(run: Run, tmp_path: Path) -> None:
    text = """\
broker: {id: one}
listeners:
  - name: CLIENT
    bind: "127.0.0.1:19092"
    upstream: nowhere
  - {name: OTHER, upstream: "127.0.0.1:29092", conect_timeout_ms: 5}
drain: {timeout_s: -1}
plugins:
  - {type: nonsense}
  - {type: console, format: xml, metrics: 3}
"""
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert [line.partition(" ")[0] for line in lines] == [
        "receiver.yaml:6:48:",
        "receiver.yaml:1:10:",
        "receiver.yaml:5:5:",
        "receiver.yaml:6:5:",
        "receiver.yaml:7:9:",
        "receiver.yaml:9:6:",
        "receiver.yaml:10:21:",
        "receiver.yaml:10:34:",
    ]
    assert "did you mean connect_timeout_ms?" in lines[0]
    assert lines[1] == 'receiver.yaml:1:10: broker.id: "one": expected auto or an integer'
    assert "listeners[1].bind: required" in lines[3]
    assert "unknown plugin type" in lines[5]


def test_every_mistake_of_a_folder_of_subscriptions_is_told(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "subscriptions.d"
    text = f"{GOOD}subscriptions: {{store: file, path: {folder}}}\n"
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert lines == [
        f'receiver.yaml:5:30: subscriptions.path: "{folder}": the folder can\'t be read: No such file or '
        "directory; set subscriptions.path to a folder"
    ]
    folder.mkdir()
    assert check(run, tmp_path, text)[0] == 0
    (folder / "a.yaml").write_text("metrics: ['b c']\ninterval_ms: 1\n")
    (folder / "c.yaml").write_text("metric: []\n")
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert [line.split(": ")[:3] for line in lines] == [
        [str(folder), "a.yaml:1:11", "metrics[0]"],
        [str(folder), "a.yaml:2:1", "interval_ms"],
        [str(folder), "c.yaml:1:1", "metric"],
        [str(folder), "c.yaml:1:1", "metrics"],
    ]
    # The files may be elsewhere.
    assert check(run, tmp_path, text, "--elsewhere")[0] == 0


def test_the_files_of_the_kafka_store_are_checked(run: Run, tmp_path: Path) -> None:
    text = f"""\
{GOOD}subscriptions:
  store: kafka
  path: {tmp_path}/absent/copy.json
  kafka:
    bootstrap_servers: "127.0.0.1:29093"
    options:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: alice
      sasl.password: hunter2
      ssl.ca.location: {tmp_path}/ca.pem
"""
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert lines == [
        "warning: receiver.yaml:14:7: subscriptions.kafka.options.sasl.password: a secret in the "
        "configuration: put it into a file, {file: PATH}",
        f'receiver.yaml:15:7: subscriptions.kafka.options.ssl.ca.location: "{tmp_path}/ca.pem": there is no '
        "such file",
        f'receiver.yaml:7:3: subscriptions.path: "{tmp_path}/absent/copy.json": there is no folder '
        f"{tmp_path}/absent: create it",
    ]


def test_files_and_folders_that_are_missing_are_mistakes(run: Run, tmp_path: Path) -> None:
    text = f"""\
listeners:
  - name: CLIENT
    bind: "127.0.0.1:19092"
    upstream: "127.0.0.1:29092"
    security_protocol: SSL
    tls: {{cert_file: {tmp_path}/server.crt, key_file: {tmp_path}/server.key}}
subscriptions: {{path: {tmp_path}/absent/subscriptions.db}}
broker: {{login: {{username: sidecar, password: {{file: {tmp_path}/password}}}}}}
rollup: {{url: "https://k:1", token: {{file: {tmp_path}/rollup}}}}
"""
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert lines == [
        f'receiver.yaml:6:11: listeners[0].tls.cert_file: "{tmp_path}/server.crt": there is no such file',
        f'receiver.yaml:6:{35 + len(str(tmp_path))}: listeners[0].tls.key_file: "{tmp_path}/server.key": '
        "there is no such file",
        f'receiver.yaml:8:48: broker.login.password.file: "{tmp_path}/password": there is no such file',
        f'receiver.yaml:9:38: rollup.token.file: "{tmp_path}/rollup": there is no such file',
        f'receiver.yaml:7:17: subscriptions.path: "{tmp_path}/absent/subscriptions.db": there is no folder '
        f"{tmp_path}/absent: create it",
    ]
    assert check(run, tmp_path, text, "--elsewhere")[0] == 0


def test_files_of_plugins_may_be_elsewhere(run: Run, tmp_path: Path) -> None:
    tls = f"{{ca_file: {tmp_path}/ca, cert_file: {tmp_path}/cert, key_file: {tmp_path}/key}}"
    header = f"{{authorization: {{file: {tmp_path}/token}}}}"
    kafka = "bootstrap_servers: 'k:9092', topic: t, security_protocol: SASL_SSL, sasl_mechanism: OAUTHBEARER"
    oauth = f"token_endpoint_url: 'https://l/t', client_id: c, client_secret: x, ca_file: {tmp_path}/ca"
    text = f"""{GOOD}\
  - {{type: otlp, protocol: http, endpoint: "https://h:4318", tls: {tls}, headers: {header}}}
  - {{type: otlp, name: b, protocol: grpc, endpoint: "https://h:4317", tls: {tls}}}
  - {{type: kafka_topic, {kafka}, tls: {tls}, oauth: {{{oauth}}}}}
  - type: prometheus
    bind: "127.0.0.1:9464"
    web_config_file: {tmp_path}/web.yml
    remote_write: {{url: "https://p:9090/w", tls: {tls}, headers: {header}}}
"""
    assert check(run, tmp_path, text, "--elsewhere") == (0, [])
    status, lines = check(run, tmp_path, text)
    assert status == 2
    assert sum("there is no such file" in line for line in lines) == 13
    assert sum("cannot read" in line or "cannot be read" in line for line in lines) == 3


def test_no_setting_demands_a_file_that_may_be_elsewhere() -> None:
    tree = Path(__file__).parents[3]
    files = [file for folder in ("plugins", "receiver") for file in (tree / folder).rglob("*.py")]
    assert len(files) > 300
    assert [file for file in files if "FilePath" in file.read_text()] == []


def test_two_services_on_one_port_are_a_mistake(run: Run, tmp_path: Path) -> None:
    text = GOOD + '  - {type: prometheus, bind: "0.0.0.0:19092"}\n'
    problem = (
        'receiver.yaml:5:24: plugins[1].bind: "0.0.0.0:19092": listeners[0] listens on 127.0.0.1:19092 '
        "already: choose another port"
    )
    for arguments in ((), ("--elsewhere",)):
        assert check(run, tmp_path, text, *arguments) == (2, [problem])


def test_a_listener_with_sasl_and_no_login_of_the_sidecar_is_a_warning(run: Run, tmp_path: Path) -> None:
    sasl = GOOD.replace('29092"}', '29092", security_protocol: SASL_PLAINTEXT}')
    status, (line,) = check(run, tmp_path, sasl)
    assert status == 0
    assert line.startswith("warning: receiver.yaml:2:5: listeners[0]: there is no broker.login")
    assert "KIP-1242" in line
    (tmp_path / "password").write_text("s3cret")
    login = f"login: {{username: sidecar, password: {{file: {tmp_path}/password}}}}"
    for broker in (login, "id: 3"):
        assert check(run, tmp_path, f"{sasl}broker: {{{broker}}}\n") == (0, [])


def test_a_secret_in_the_file_is_a_warning(run: Run, tmp_path: Path) -> None:
    text = GOOD + (
        '  - {type: otlp, endpoint: "http://127.0.0.1:4317", headers: {authorization: "Bearer s3cret"}}\n'
    )
    status, lines = check(run, tmp_path, text)
    assert status == 0
    (line,) = lines
    assert line.startswith("warning: receiver.yaml:5:")
    assert "plugins[1].headers.authorization: a secret in the configuration" in line
    assert "s3cret" not in line
