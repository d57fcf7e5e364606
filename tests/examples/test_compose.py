"""The compose example fits together; checked without starting it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from spark_streaming.load import load
from spark_streaming.postgres import Store
from spark_streaming.settings import RetentionSettings
from tests.examples.compose import COMPOSE, EXAMPLES, InvalidComposeError, resolve
from tests.examples.database import server_with_roles
from tests.testbed.dashboard_queries import CHART, DASHBOARDS, asked, chosen
from tests.testbed.grafana_sql import TimeRange

ROOT = EXAMPLES.parent
#: Services without a health check: no shell, the image's own check, one-shot, or only load.
WITHOUT_HEALTH = {"collector", "subscribe", "producer", "consumer", "rollup"}
#: World-writable folders of the images. A tmpfs inherits this mode but not the owner.
EVERYBODYS = {"/tmp", "/var/run/postgresql"}
#: From Grafana's documentation, "Provision Grafana".
DATA_SOURCE_FIELDS = {
    "name", "uid", "type", "access", "orgId", "url", "user", "database", "basicAuth", "basicAuthUser",
    "withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "editable",
}  # fmt: skip
PROVIDER_FIELDS = {
    "name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds",
    "allowUiUpdates", "options",
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    return resolve(COMPOSE / "compose.yaml")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that make-secrets.sh creates."""
    folder = tmp_path_factory.mktemp("compose")
    shutil.copy(COMPOSE / "make-secrets.sh", folder)
    subprocess.run([folder / "make-secrets.sh"], check=True, timeout=30)
    return folder / "secrets"


def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("services: {one: {image: one, volume: [a]}}\n")
    with pytest.raises(InvalidComposeError, match="volume"):
        resolve(wrong)


def test_services_are_confined(model: dict[str, Any]) -> None:
    for name, service in model["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert ("healthcheck" in service) == (name not in WITHOUT_HEALTH), name
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1", name


def test_a_tmpfs_over_an_owned_folder_names_the_owner(model: dict[str, Any]) -> None:
    seen = 0
    for name, service in model["services"].items():
        for mount in service.get("tmpfs", ()):
            path, _, options = mount.partition(":")
            if path not in EVERYBODYS:
                seen += 1
                assert {"uid", "mode"} & {option.partition("=")[0] for option in options.split(",")}, name
    assert seen


def test_the_brokers_logs_do_not_fill_its_memory(model: dict[str, Any]) -> None:
    kafka = model["services"]["kafka"]
    assert all("size=" in mount for mount in kafka["tmpfs"])
    # kafka-server-start.sh adds -loggc, and the configuration that writes files, where these are
    # not set.
    assert "-loggc" not in kafka["environment"]["EXTRA_ARGS"]
    assert "configurationFile" not in kafka["environment"]["KAFKA_LOG4J_OPTS"]


def test_images_are_pinned(model: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name, service in model["services"].items():
        repository, _, tag = service["image"].rpartition(":")
        if repository.startswith("ghcr.io/kafka-client-telemetry/"):
            assert tag == version, name
        else:
            assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), name
    for name in ("sidecar", "rollup"):
        build = model["services"][name]["build"]
        assert build["args"]["VERSION"] == version
        assert Path(build["context"]) == ROOT
        assert (ROOT / build["dockerfile"]).is_file()


def test_every_file_is_there_and_used(model: dict[str, Any]) -> None:
    mounted = {
        Path(mount["source"])
        for service in model["services"].values()
        for mount in service.get("volumes", ())
        if mount["type"] == "bind"
    }
    assert [path for path in mounted if not path.exists()] == []
    own = set(COMPOSE.rglob("*.yaml")) | set(COMPOSE.glob("*.json")) | set(COMPOSE.rglob("*.sql"))
    unused = {path for path in own if not mounted & {path, *path.parents}}
    assert unused == {COMPOSE / "compose.yaml"}


def test_secrets_are_files_made_once(model: dict[str, Any], secrets: Path) -> None:
    made = {path.name: path.read_text() for path in secrets.iterdir()}
    assert {Path(secret["file"]).name for secret in model["secrets"].values()} == set(made)
    assert all(len(value) >= 48 for value in made.values())
    assert f":{made['rollup_password']}@" in made["rollup_url"]
    subprocess.run([secrets.parent / "make-secrets.sh"], check=True, timeout=30)
    assert {path.name: path.read_text() for path in secrets.iterdir()} == made
    assert secrets.stat().st_mode & 0o777 == 0o700
    ignored = subprocess.run(
        ["git", "check-ignore", "--quiet", COMPOSE / "secrets" / "rest_token"],
        cwd=ROOT,
        check=False,
        timeout=30,
    )
    assert ignored.returncode == 0


def test_grafana_has_the_data_sources_of_dashboards_and_alerts(model: dict[str, Any]) -> None:
    sources = yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())
    providers = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())
    assert sources["apiVersion"] == providers["apiVersion"] == 1
    for source in sources["datasources"]:
        assert set(source) <= DATA_SOURCE_FIELDS
    for provider in providers["providers"]:
        assert set(provider) <= PROVIDER_FIELDS

    types = {
        variable["query"]
        for dashboard in DASHBOARDS.values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert {source["type"] for source in sources["datasources"]} == types
    rules = yaml.safe_load((CHART / "alerts" / "grafana-rules.yaml").read_text())
    asked_for = {
        query["datasourceUid"]
        for group in rules["groups"]
        for rule in group["rules"]
        for query in rule["data"]
    }
    assert asked_for - {"__expr__"} == {"kafka-client-telemetry-postgres"}
    assert "kafka-client-telemetry-postgres" in {source["uid"] for source in sources["datasources"]}

    grafana = model["services"]["grafana"]
    mounts = {
        mount["target"]: Path(mount["source"]) for mount in grafana["volumes"] if mount["type"] == "bind"
    }
    (provider,) = providers["providers"]
    folder = mounts[provider["options"]["path"]]
    assert {path.stem for path in folder.glob("*.json")} == set(DASHBOARDS)
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (folder / home.name).is_file()
    assert str(home.parent) == provider["options"]["path"]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/receiver.yaml")), ids=lambda file: file.parent.name)
def test_the_receiver_accepts_its_configuration(file: Path) -> None:
    command: list[str | Path] = [
        Path(sys.executable).with_name("kafka-telemetry"),
        "config",
        "check",
        "--elsewhere",
        file,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/rollup.yaml")), ids=lambda file: file.parent.name)
def test_the_roll_up_accepts_its_configuration(file: Path, secrets: Path, tmp_path: Path) -> None:
    moved = tmp_path / "rollup.yaml"
    moved.write_text(file.read_text().replace("/run/secrets", str(secrets)))
    settings = load(moved, {})
    assert settings.source == yaml.safe_load(file.read_text())["source"]


@pytest.fixture(scope="module")
def server(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_with_roles(tmp_path_factory.mktemp("server") / "data", secrets) as where:
        yield where


def test_grafana_can_read_only_the_roll_ups_tables(server: str, secrets: Path) -> None:
    passwords = {path.name: path.read_text() for path in secrets.iterdir()}
    owner = passwords["rollup_url"].replace("@postgres:5432/telemetry", f"@/telemetry?{server}")
    assert owner != passwords["rollup_url"]
    settings = load(COMPOSE / "rollup.yaml", {"postgres": owner})
    with Store(owner, retention=RetentionSettings(), reader_role=settings.reader_role) as store:
        store.migrate()

    source = next(
        source
        for source in yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())["datasources"]
        if source["type"] == "grafana-postgresql-datasource"
    )
    login = f"postgresql://{source['user']}@/{source['jsonData']['database']}?{server}"
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(login, password="another")
    now = datetime.now(UTC)
    window = TimeRange(start=now - timedelta(hours=6), end=now)
    with psycopg.connect(
        login, password=passwords["grafana_postgres_password"], autocommit=True
    ) as connection:
        for dashboard in DASHBOARDS.values():
            for query in asked(dashboard, chosen(dashboard, connection, window, {}), window):
                psycopg.RawCursor(connection).execute(query.sql.encode())
        for refused in (
            "CREATE TABLE public.mine (one int)",
            "SET default_transaction_read_only = off; DELETE FROM telemetry.finding",
            "SELECT * FROM telemetry.migration",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
                connection.execute(refused.encode())
