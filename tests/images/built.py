"""``make test-images``: builds the images in root folders and runs them there.

They run as an engine is told to run them in production: their user, no capability, the root
read-only, /tmp and /var/lib/kafka-telemetry writable. It takes minutes and some gigabytes of disk,
so it is no part of ``make test``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import psycopg
import pytest
import yaml
from cyclonedx.model.bom import Bom

from deploy import broker_bridge
from deploy.broker_bridge import JAR
from tests.images import engine
from tests.images.dockerfile import context
from tests.images.engine import TREE, Image, Mount
from tests.images.test_files import ALL, IMAGES, NAMES, NOT_WANTED, _locked
from tests.integration.rollup.pushes import CONNECTIONS, MINUTE_NS, Client, push, spool
from tests.release.test_contents import version_of_the_project
from tests.testbed import cache
from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.commands import run
from tests.testbed.process import ChildProcess, wait_until
from tests.testbed.sidecar import config_for

pytestmark = pytest.mark.timeout(1800)

STATE = "/var/lib/kafka-telemetry"
CONFIG = "/etc/kafka-telemetry"
USER = 10001
#: As OpenShift's restricted-v2 chooses.
ANY_USER = 1000660000
SPARK_S = 900.0
NOW = (time.time_ns() // MINUTE_NS - 10) * MINUTE_NS
ORDERS = Client(instance="AAAAAAAAAAAAAAAAAAAAAA")
#: Compiles the extension for the wheel, which has no use for it.
BUILD_HOOK = Path("receiver/native/build.py")
#: As pyproject.toml does for all tests, and says why.
KAFKA_PYTHONS = [
    word
    for name in ("read", "open")
    for word in ("-W", f"ignore:{name}_text is deprecated:DeprecationWarning")
]
#: May be written to by anybody in every Debian; read-only in a container but for /tmp.
EVERYBODYS = {"/tmp", "/var/tmp", "/run/lock"}

named = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The settings that one image runs with.

    Attributes:
        image: It.
        folder: Of this machine: ``config`` and ``state`` are mounted.
        mounts: What else is.
    """

    image: Image
    folder: Path
    mounts: tuple[Mount, ...] = ()

    def argv(self, arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """The command for this machine."""
        mounts = [
            Mount(source=self.folder / "config", target=CONFIG),
            Mount(source=self.folder / "state", target=STATE, writable=True),
            *self.mounts,
        ]
        return self.image.argv(arguments, mounts, env)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = self.argv(arguments, env)
        return subprocess.run(command, capture_output=True, text=True, timeout=SPARK_S, check=False)

    @contextmanager
    def started(self) -> Iterator[ChildProcess]:
        """Start the image's own command."""
        command = self.argv([*self.image.entrypoint, *self.image.command], {})
        process = ChildProcess("container", command, log=self.folder / "log")
        try:
            yield process
        finally:
            process.kill()


def first_process(process: ChildProcess) -> int:
    """The container's process 1, by this machine's number."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def container(name: str, folder: Path, *mounts: Mount) -> Container:
    """A container of an image, built if need be."""
    folder.chmod(0o755)
    (folder / "config").mkdir()
    (folder / "state").mkdir()
    os.chown(folder / "state", USER, USER)
    return Container(image=engine.built(name), folder=folder, mounts=mounts)


def test_buildkit_reports_no_problem() -> None:
    source = Path(__file__).with_name("lint")
    folder = cache.cache_folder() / f"dockerfile-lint-{cache.recipe_hash([source])}"
    with cache.exclusive("dockerfile-lint", lambda: None):
        if not folder.is_dir():
            command: list[str | Path] = ["go", "build", "-trimpath", "-buildvcs=false", "-o"]
            cache.build_atomically(folder, lambda work: run([*command, work / "lint", "."], cwd=source))
    files = [IMAGES / name / "Dockerfile" for name in ALL]
    done = subprocess.run([folder / "lint", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # A planted mistake is found.
    assert subprocess.run(
        [folder / "lint", source / "bad.Dockerfile"], capture_output=True, check=False
    ).returncode


def test_the_bridges_image_is_its_jar_alone(tmp_path: Path) -> None:
    root = engine.built("bridge").root
    assert [path.relative_to(root).as_posix() for path in root.rglob("*")] == [JAR]
    assert (root / JAR).stat().st_mode & 0o444 == 0o444  # a broker has another user
    mine = broker_bridge.build(tmp_path)
    with zipfile.ZipFile(root / JAR) as theirs, zipfile.ZipFile(mine) as here:
        assert theirs.namelist() == here.namelist()


@named
def test_the_image_is_read_only_and_has_no_build_leftovers(name: str) -> None:
    root = engine.built(name).root
    writable = f"-user {USER} -o -group {USER} -o -perm -o=w ! -type l".split()
    # Devices are the engine's.
    find = [
        "find",
        str(root),
        "-xdev",
        "-path",
        str(root / "dev"),
        "-prune",
        "-o",
        "(",
        *writable,
        ")",
        "-print",
    ]
    found = subprocess.run(find, capture_output=True, text=True, check=True).stdout
    assert {f"/{Path(line).relative_to(root)}" for line in found.splitlines()} == {*EVERYBODYS, STATE}
    for folder in (
        "tmp",
        "run/certificates",
        "root/.cache",
        "root/.m2",
        "steps",
        "build",
        "var/lib/apt/lists",
    ):
        assert not (root / folder).exists() or not any((root / folder).iterdir()), folder
    assert not [path for tool in ("pip", "mvn", "javac", "gcc") for path in root.glob(f"**/bin/{tool}")]


@named
def test_the_image_and_its_contents_list_have_the_locked_packages(name: str) -> None:
    root = engine.built(name).root
    text = (root / "opt/kafka-telemetry/sbom.cdx.json").read_text()
    bom = Bom.from_json(json.loads(text))  # type: ignore[attr-defined]  # added by its decorator
    purls = [component.purl for component in bom.components if component.purl is not None]
    python = {purl.name: f"=={purl.version}" for purl in purls if purl.type == "pypi"}
    locked = {
        package: version for package, (version, _) in _locked(IMAGES / name / "requirements.lock").items()
    }
    assert python == locked
    assert not set(python).intersection(NOT_WANTED)
    assert bom.metadata.component is not None
    assert bom.metadata.component.version == version_of_the_project()
    query = ["chroot", str(root), "dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"]
    debian = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(f"{purl.name} {purl.version}" for purl in purls if purl.type == "deb") == sorted(debian)
    jars = {jar.name for jar in root.glob("opt/kafka-telemetry/**/*.jar")}
    named_jars = [purl for purl in purls if purl.type in {"maven", "generic"}]
    assert len(named_jars) == len(jars)
    assert bool(jars) == (name == "rollup")


@named
def test_every_module_imports_and_the_version_is_printed(name: str, tmp_path: Path) -> None:
    started = container(name, tmp_path)
    said = started.run("kafka-telemetry", "--version")
    data_path = "compiled" if name == "receiver" else "python"
    expected = f"kafka-telemetry {version_of_the_project()}\ndata path: {data_path}\n"
    assert (said.returncode, said.stdout) == (0, expected), said.stderr
    role = "plugins" if name == "receiver" else "spark_streaming"
    packages = {"receiver", "kafka_client_telemetry", role}
    modules = [
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in (_installed_at(path) for path in context(TREE))
        if path.parts[0] in packages
        and path.suffix == ".py"
        and path.stem != "__main__"
        and path != BUILD_HOOK
    ]
    # The embedded PostgreSQL is looked for when it is used, and is not there.
    said = started.run(
        "python",
        *("-W", "error", *KAFKA_PYTHONS),
        *("-c", f"import importlib\nfor m in {modules}: importlib.import_module(m)"),
    )
    assert said.returncode == 0, said.stderr


def test_the_test_kit_listens_and_reports_when_it_is_stopped(tmp_path: Path) -> None:
    image = container("testkit", tmp_path)
    assert image.image.command[:2] == ["--bind", "0.0.0.0:19092"]
    command = image.argv([*image.image.entrypoint, "--bind", "127.0.0.1:0", "--report", "json"], {})
    kit = ChildProcess("testkit", command, log=tmp_path / "log", output=tmp_path / "report")
    try:
        wait_until(lambda: "listens on" in kit.log_text(), timeout_s=120, what="the test kit to listen")
        os.kill(first_process(kit), signal.SIGTERM)
        assert kit.wait(60) == 0
    finally:
        kit.kill()
    assert json.loads((tmp_path / "report").read_text()) == {"clients": []}


def _installed_at(path: Path) -> Path:
    public_api = Path("receiver/public-api")
    return path.relative_to(public_api) if path.is_relative_to(public_api) else path


def test_the_receiver_serves_is_healthy_and_stops(broker: KafkaBroker, tmp_path: Path) -> None:
    started = container("receiver", tmp_path)
    config = config_for(broker)
    config["subscriptions"]["path"] = f"{STATE}/subscriptions.db"
    config["plugins"] = [
        {"type": "spool_files", "path": f"{STATE}/telemetry", "roll_seconds": 1},
        {"type": "console", "delivery": "spool_always", "spool": {"path": f"{STATE}/spool"}},
    ]
    url = f"http://{config['rest']['bind']}"
    (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump(config))
    health = started.image.health
    assert started.run(*health, KAFKA_TELEMETRY_URL=url).returncode == 1
    with started.started() as process:
        process.wait_until_ready(lambda: _ready(url), timeout_s=120)
        assert started.run(*health, KAFKA_TELEMETRY_URL=url).returncode == 0
        body = {"metrics": ["*"], "interval_ms": 1000, "match": {}}
        httpx.put(f"{url}/v1/subscriptions/all", json=body, timeout=60).raise_for_status()
        broker.create_topic("image")
        # It asks for ApiVersions first, and pushes only if telemetry is in the answer.
        with LibrdkafkaClient(
            Mode.PRODUCER, bootstrap=config["listeners"][0]["bind"], topic="image"
        ) as producer:
            producer.wait_for_records(1)
            _wait_for_a_file(tmp_path / "state" / "telemetry")
        os.kill(first_process(process), 15)
        assert process.wait(30) == 0
    log = (tmp_path / "log").read_text()
    assert "Read-only file system" not in log
    assert "Permission denied" not in log


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


def _wait_for_a_file(folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not any(folder.rglob("*.parquet")):
        assert time.monotonic() < deadline, "no file of pushes within 60 s"
        time.sleep(0.2)


@pytest.fixture
def rolled(tmp_path: Path, database: str) -> Iterator[Container]:
    """The roll-up with three pushes to read and a database for them."""
    spool(tmp_path / "telemetry", "one", [push(ORDERS, NOW + number * MINUTE_NS) for number in range(3)])
    parts = urlsplit(database)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    mounts = (
        Mount(source=Path(options["host"]), target="/tmp/postgres"),
        Mount(source=tmp_path / "telemetry", target="/tmp/telemetry"),
    )
    started = container("rollup", tmp_path, *mounts)
    url = f"postgresql://postgres@{parts.path}?host={quote('/tmp/postgres')}&port={options['port']}"
    (tmp_path / "config" / "url").write_text(url)
    settings = {
        "source": "spool_files",
        "spool_files": {"path": "/tmp/telemetry"},
        "postgres": {"file": f"{CONFIG}/url"},
        "checkpoint": f"{STATE}/checkpoint",
    }
    (tmp_path / "config" / "rollup.yaml").write_text(yaml.safe_dump(settings))
    with _open_to_other_users(Path(options["host"]), database):
        yield started


@contextmanager
def _open_to_other_users(folder: Path, database: str) -> Iterator[None]:
    """Let the image's user, which has no name here, connect to the server in a folder meanwhile."""
    rules, server_socket = folder / "pg_hba.conf", next(folder.glob(".s.PGSQL.*[0-9]"))
    before, mode, server_mode = rules.read_text(), folder.stat().st_mode, server_socket.stat().st_mode
    try:
        folder.chmod(mode | 0o011)
        server_socket.chmod(0o777)
        rules.write_text(f"local all postgres trust\n{before}")
        _reload(database)
        yield
    finally:
        rules.write_text(before)
        _reload(database)
        server_socket.chmod(server_mode)
        folder.chmod(mode)


def _reload(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SELECT pg_reload_conf()")


def _connections(database: str) -> float:
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT sum(sum) FROM telemetry.metric_1m WHERE metric = %s", [CONNECTIONS]
        ).fetchone()
    assert found is not None
    return float(found[0])


def test_the_rollup_runs_as_a_user_without_a_name(rolled: Container, database: str) -> None:
    rolled.image.user = f"{ANY_USER}:0"
    os.chown(rolled.folder / "state", ANY_USER, 0)
    done = rolled.run(*rolled.image.entrypoint, *rolled.image.command, "--once")
    assert done.returncode == 0, done.stderr
    assert _connections(database) == 3


def test_the_rollup_is_healthy_after_a_batch(rolled: Container, database: str) -> None:
    health = rolled.image.health
    assert rolled.run(*health).returncode == 1
    done = rolled.run(*rolled.image.entrypoint, *rolled.image.command, "--once")
    assert done.returncode == 0, done.stderr
    assert _connections(database) == 3
    assert rolled.run(*health).returncode == 0, done.stderr


def test_the_rollup_stops_when_its_container_is_stopped(rolled: Container, database: str) -> None:
    with rolled.started() as process:
        process.wait_until_ready(lambda: "pushes=3" in process.log_text(), timeout_s=SPARK_S)
        os.kill(first_process(process), 15)
        assert process.wait(60) == 0
    assert _connections(database) == 3


def test_spark_submit_runs_the_rollup_as_a_driver_on_kubernetes_does(
    rolled: Container, database: str
) -> None:
    jars = "/opt/kafka-telemetry/jars/decoder/*"
    properties = (
        f"spark.master=local[2]\nspark.driver.extraClassPath={jars}\nspark.executor.extraClassPath={jars}\n"
    )
    (rolled.folder / "config" / "spark.properties").write_text(properties)
    done = rolled.run(
        *rolled.image.entrypoint,
        *("driver", "--properties-file", f"{CONFIG}/spark.properties"),
        *("--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/kafka-telemetry/rollup.py"),
        *("run", "--config", f"{CONFIG}/rollup.yaml", "--once"),
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
    )
    assert done.returncode == 0, done.stderr
    assert _connections(database) == 3


def test_an_executor_connects_to_its_driver(tmp_path: Path) -> None:
    started = container("rollup", tmp_path)
    done = started.run(
        *(*started.image.entrypoint, "executor"),
        SPARK_JAVA_OPT_0="-Dspark.network.timeout=10s",
        SPARK_JAVA_OPT_1="-Dspark.rpc.askTimeout=10s",
        SPARK_EXECUTOR_MEMORY="256m",
        SPARK_EXTRA_CLASSPATH="/opt/kafka-telemetry/jars/decoder/*",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:9",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="spark-application",
        SPARK_EXECUTOR_POD_IP="127.0.0.1",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="executor-1",
    )
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stdout + done.stderr
    assert "Connection refused" in done.stdout + done.stderr
