"""Runs the sidecar as users do: installed command, configuration file, REST, signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.testbed.broker import KafkaBroker
from tests.testbed.collector import Collector
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import ChildProcess
from tests.testbed.server import Server

_READY_WITHIN_S = 300.0
_STOP_WITHIN_S = 30.0
_REQUEST_TIMEOUT_S = 120.0


def config_for(
    broker: KafkaBroker,
    *,
    collector: Collector | None = None,
    client_port: int | None = None,
    listeners: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return receiver.yaml, as a mutable dict, for a sidecar in front of ``broker``.

    Its listeners are bound where the broker tells clients to connect; a listener of the broker's
    that advertises itself gets none. Each speaks what the broker's listener speaks.

    Args:
        broker: What the sidecar stands in front of.
        collector: Where an ``otlp`` plugin sends pushes, over gRPC; None: to its log.
        client_port: Where CLIENT is bound instead, and no other listener: for tests that send raw
            requests and follow no advertised address, and so may run beside another sidecar of the
            same broker.
        listeners: Further keys of listeners, by name, as the configuration has them: TLS ends at
            the sidecar, say, with ``{"SASL": {"security_protocol": "SASL_SSL", "tls": {...}}}``.
    """
    ports = {listener.name: listener.advertised_port for listener in broker.listeners}
    if client_port is not None:
        ports = {"CLIENT": client_port}
    protocols = {listener.name: listener.security_protocol for listener in broker.listeners}
    plugins: Sequence[Mapping[str, object]] = [{"type": "console"}]  # without any, nobody is asked
    if collector is not None:
        plugins = [{"type": "otlp", "endpoint": collector.grpc_endpoint, "protocol": "grpc"}]
    return {
        "broker": {"id": broker.node_id, "cluster_id": None},
        "listeners": [
            {
                "name": name,
                "bind": f"{LOOPBACK}:{bound}",
                "upstream": f"{LOOPBACK}:{broker.port(name)}",
                "security_protocol": protocols[name],
                **(listeners or {}).get(name, {}),
            }
            for name, bound in ports.items()
            if bound != broker.port(name)
        ],
        "subscriptions": {"store": "sqlite", "path": "./subscriptions.db"},
        "rest": {"bind": f"{LOOPBACK}:{free_port()}"},
        "plugins": list(plugins),
    }


class Sidecar(Server):
    """``kafka-telemetry serve`` in a folder of its own, running within the context.

    Args:
        config: The configuration; its ``rest.bind`` and its listeners' ``bind`` say where it is
            met.
        env: Environment variables for it.
        token: The bearer token that :attr:`http` shows.

    Attributes:
        config: As given.
        url: Where its REST API is.
        http: An HTTP client for that; paths begin with ``/``.
    """

    def __init__(
        self, config: Mapping[str, Any], *, env: Mapping[str, str] | None = None, token: str | None = None
    ) -> None:
        super().__init__("sidecar")
        self.config = config
        self.url = f"http://{config['rest']['bind']}"
        self.http = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=_REQUEST_TIMEOUT_S,
            trust_env=False,
        )
        # Tests count its descriptors and memory in /proc, which else root alone may read.
        dumpable = {} if os.geteuid() == 0 else {"KAFKA_TELEMETRY_DEBUG__DUMPABLE": "true"}
        self._env = {**dumpable, **(env or {})}

    def start(self) -> None:
        """Start it with its configuration, again after its end; its store stays.

        Raises:
            StartError: It did not become ready; shows the tail of its log.
        """
        folder = self._folder()
        file = folder / "receiver.yaml"
        file.write_text(yaml.safe_dump(dict(self.config), sort_keys=False))
        self._process = ChildProcess(
            "sidecar",
            [Path(sys.executable).with_name("kafka-telemetry"), "serve", "--config", file],
            log=folder / "sidecar.log",
            env=self._env,
            cwd=folder,
        )
        self._process.wait_until_ready(self.is_ready, timeout_s=_READY_WITHIN_S)

    def port(self, listener: str = "CLIENT") -> int:
        """The port of 127.0.0.1 that a listener is bound to.

        Raises:
            StopIteration: The configuration has no such listener.
        """
        binds = (entry["bind"] for entry in self.config["listeners"] if entry["name"] == listener)
        return int(next(binds).rsplit(":", 1)[1])

    def bootstrap(self, listener: str = "CLIENT") -> str:
        """What a client of a listener bootstraps from, ``host:port``."""
        return f"{LOOPBACK}:{self.port(listener)}"

    def is_ready(self) -> bool:
        """Whether ``GET /readyz`` says 200."""
        try:
            return self.http.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def put_subscription(
        self, name: str, metrics: Sequence[str], interval_ms: int, match: Mapping[str, str] | None = None
    ) -> None:
        """Create or replace a subscription over REST.

        Args:
            name: The subscription's name.
            metrics: Prefixes of metric names; ``*`` for all.
            interval_ms: Push interval in milliseconds.
            match: Selector to regular expression; None matches every client.

        Raises:
            httpx.HTTPStatusError: The sidecar refused; the message holds its problem document.
        """
        body = {"metrics": list(metrics), "interval_ms": interval_ms, "match": dict(match or {})}
        response = self.http.put(f"/v1/subscriptions/{name}", json=body)
        if response.is_error:
            raise httpx.HTTPStatusError(
                f"PUT subscription {name}: {response.status_code}: {response.text}",
                request=response.request,
                response=response,
            )

    def reload(self) -> None:
        """Make it read its configuration again (SIGHUP), as :attr:`config` is by now."""
        (self._folder() / "receiver.yaml").write_text(yaml.safe_dump(dict(self.config), sort_keys=False))
        self._started().signal(signal.SIGHUP)

    def terminate(self) -> int:
        """Let it drain and end (SIGTERM).

        Returns:
            Its exit status.

        Raises:
            StopError: It had to be killed; shows the tail of its log.
        """
        return self._started().terminate(_STOP_WITHIN_S)

    def close(self) -> None:
        """End it if it runs, and forget its files."""
        self.http.close()
        super().close()
