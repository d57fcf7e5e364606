"""Runs the compose example's services as local processes, without containers.

Addresses become ports of loopback, folders become folders of the test's; everything else is as
in the compose file. Grafana can't be had, so its part is the login that it has at PostgreSQL.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import httpx

from tests.examples.compose import COMPOSE, Relocated, resolve
from tests.examples.database import server_with_roles
from tests.examples.real import kafka
from tests.testbed import parts
from tests.testbed.dashboard_queries import CHART
from tests.testbed.ports import LOOPBACK, free_port, is_open
from tests.testbed.process import ChildProcess, ScratchFolder, wait_until

_TELEMETRY: Final = Path(sys.executable).with_name("kafka-telemetry")
_READY_WITHIN_S: Final = 60.0


class Stack:
    """Everything, started on entering the context and ended on leaving it.

    Attributes:
        outside: Where clients outside of the network come in, ``host:port``.
        inside: The same for clients inside.
        rest: The REST API, with the token.
        prometheus: Prometheus' HTTP API.
        database: The query of PostgreSQL's URLs.
        secrets: Where the secrets are.
        processes: What runs, by the service's name.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.processes: dict[str, ChildProcess] = {}

    def __enter__(self) -> Self:
        try:
            self._start(self._stack.enter_context(ScratchFolder("compose")).path)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, folder: Path) -> None:
        shutil.copy(COMPOSE / "make-secrets.sh", folder)
        subprocess.run([folder / "make-secrets.sh"], check=True, timeout=30)
        self.secrets = folder / "secrets"
        self.database = self._stack.enter_context(
            server_with_roles(folder / "postgres" / "data", self.secrets)
        )
        url = self.secrets / "rollup_url"
        url.write_text(url.read_text().replace("@postgres:5432/telemetry", f"@/telemetry?{self.database}"))

        self._ports = {
            name: free_port()
            for name in (
                *("inside", "outside", "rest", "otlp", "exporter", "collector", "prometheus"),
                *("INSIDE", "OUTSIDE", "INTERNAL", "CONTROLLER"),
            )
        }
        self.outside = f"localhost:{self._ports['outside']}"
        self.inside = f"{LOOPBACK}:{self._ports['inside']}"
        self._folder = folder
        self._files = Relocated(resolve(COMPOSE / "compose.yaml"), folder=folder, places=self._places(folder))
        self._run("collector", [parts.EXAMPLES_COLLECTOR.require() / "otelcol"], ready=self._open("otlp"))
        self._run(
            "prometheus",
            [parts.PROMETHEUS.require() / "prometheus"],
            f"--web.listen-address={LOOPBACK}:{self._ports['prometheus']}",
            ready=self._open("prometheus"),
        )
        self.prometheus = httpx.Client(
            base_url=f"http://{LOOPBACK}:{self._ports['prometheus']}", timeout=10.0, trust_env=False
        )
        self._stack.callback(self.prometheus.close)
        self.rest = httpx.Client(
            base_url=f"http://{LOOPBACK}:{self._ports['rest']}",
            headers={"authorization": f"Bearer {(self.secrets / 'rest_token').read_text()}"},
            timeout=10.0,
            trust_env=False,
        )
        self._stack.callback(self.rest.close)
        self._run("sidecar", [_TELEMETRY], ready=self._open("rest"))
        self._run_kafka()
        wait_until(
            lambda: self.rest.get("/readyz").is_success,
            timeout_s=_READY_WITHIN_S,
            what="the sidecar's /readyz",
        )
        self._run("subscribe", [_TELEMETRY])
        assert self.processes["subscribe"].wait(_READY_WITHIN_S) == 0
        for service in ("producer", "consumer"):
            self._run(service, kafka.java())
        # deploy.replicas
        self._run("consumer", kafka.java(), name="consumer-2")
        self._run("rollup", [_TELEMETRY])

    def _run_kafka(self) -> None:
        environment = self._files.environment("kafka")
        properties = kafka.set_up(self._folder / "kafka", environment)
        command = [*kafka.java(environment), "kafka.Kafka", properties]
        self._child("kafka", command, environment)

    def _run(
        self,
        service: str,
        program: list[str | Path],
        *further: str,
        name: str | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        command = [*program, *map(kafka.class_of, self._files.command(service)), *further]
        child = self._child(name or service, command, self._files.environment(service))
        if ready is not None:
            child.wait_until_ready(ready, timeout_s=_READY_WITHIN_S)

    def _child(self, name: str, command: list[str | Path], environment: dict[str, str]) -> ChildProcess:
        child = ChildProcess(
            name, command, log=self._folder / f"{name}.log", env=environment, cwd=self._folder
        )
        self.processes[name] = child
        self._stack.callback(child.kill)
        return child

    def _open(self, port: str) -> Callable[[], bool]:
        return lambda: is_open(self._ports[port])

    def _places(self, folder: Path) -> dict[str, object]:
        here = {name: f"{LOOPBACK}:{port}" for name, port in self._ports.items()}
        return {
            "sidecar:9092": here["inside"],
            "0.0.0.0:9092": here["inside"],
            "localhost:29092": self.outside,
            "0.0.0.0:29092": here["outside"],
            "kafka:9092": here["INSIDE"],
            "kafka:29092": here["OUTSIDE"],
            "kafka:9093": here["INTERNAL"],
            "kafka:9094": here["CONTROLLER"],
            "INSIDE://:9092": f"INSIDE://{here['INSIDE']}",
            "OUTSIDE://:29092": f"OUTSIDE://{here['OUTSIDE']}",
            "INTERNAL://:9093": f"INTERNAL://{here['INTERNAL']}",
            "CONTROLLER://:9094": f"CONTROLLER://{here['CONTROLLER']}",
            "sidecar:8642": here["rest"],
            "0.0.0.0:8642": here["rest"],
            "collector:4317": here["otlp"],
            "0.0.0.0:4317": here["otlp"],
            "collector:9464": here["exporter"],
            "0.0.0.0:9464": here["exporter"],
            "collector:8888": here["collector"],
            "host: 0.0.0.0, port: 8888": f"host: {LOOPBACK}, port: {self._ports['collector']}",
            "/run/secrets": self.secrets,
            "/var/lib/kafka/data": folder / "kafka" / "data",
            "/var/lib/kafka-telemetry": folder / "sidecar",
            "/var/lib/kafka-telemetry/checkpoint": folder / "rollup" / "checkpoint",
            "/var/lib/sidecar": folder / "sidecar",
            "/etc/prometheus/rules.yaml": CHART / "alerts" / "prometheus-rules.yaml",
            "tsdb.path=/prometheus": f"tsdb.path={folder / 'prometheus'}",
        }
