"""The relays between client and broker: none, HAProxy, the sidecar, another command.

Owns their configuration. Each relay is one process on 127.0.0.1 with its defaults, as it would be
deployed.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Running, free_port, running
from receiver.settings.limits import PeerLimitsSettings
from tests.testbed.certificates import CertificateFiles

HAPROXY_CONFIGURATION = """\
global
    nbthread 1
    maxconn 7000
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
listen bench
    bind {listen}{tls}
    server broker {upstream}
{more}
"""

SIDECAR_CONFIGURATION = """\
broker: {{id: 1, cluster_id: null}}
listeners:
  - {{name: CLIENT, bind: "{listen}", upstream: "{upstream}"{tls}}}
limits: {limits}
subscriptions: {{store: sqlite, path: "{folder}/subscriptions.db"}}
rest: {{bind: "{rest}"}}
plugins: {plugins}
"""

#: All clients of a benchmark come from one address: the work is measured, not what limits let
#: through.
UNLIMITED = json.dumps({"source_address": dict.fromkeys(PeerLimitsSettings.model_fields)})

HAPROXY_MISSING = "HAProxy is not installed: apt-get install haproxy"


class RelayMissingError(RuntimeError):
    """A relay is not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A running relay.

    Attributes:
        name: its column in the tables.
        target: host:port where clients connect.
        process: what to measure; ``None`` for a direct connection.
        rest: host:port of its REST API; empty for anything but the sidecar.
        ca: who signed its certificate, a PEM file; ``None`` without TLS.
    """

    name: str
    target: str
    process: Running | None
    rest: str = ""
    ca: Path | None = None


@contextlib.contextmanager
def direct(upstream: str) -> Iterator[Relay]:
    """Relay nothing: clients connect to ``upstream`` (host:port) itself."""
    yield Relay(name="direct", target=upstream, process=None)


@contextlib.contextmanager
def haproxy(
    upstream: str, folder: Path, *, tls: CertificateFiles | None = None, more: str = ""
) -> Iterator[Relay]:
    """Run HAProxy in TCP mode with one thread in front of ``upstream`` (host:port).

    Args:
        upstream: the broker's host:port.
        folder: for its configuration and log.
        tls: its certificate, where it is to end TLS.
        more: lines to add to its ``listen`` section.

    Raises:
        RelayMissingError: HAProxy is not installed.
        ProcessError: it doesn't start.
    """
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if program is None:
        raise RelayMissingError(HAPROXY_MISSING)
    listen = f"127.0.0.1:{free_port()}"
    configuration = folder / "haproxy.cfg"
    ends_tls = f" ssl crt {tls.keystore}" if tls else ""
    configuration.write_text(
        HAPROXY_CONFIGURATION.format(listen=listen, tls=ends_tls, upstream=upstream, more=more)
    )
    command = [program, "-db", "-f", str(configuration)]
    with running("haproxy", command, folder=folder, ready=listen) as process:
        yield Relay(name="haproxy", target=listen, process=process, ca=tls.ca if tls else None)


@contextlib.contextmanager
def other(name: str, template: str, upstream: str, folder: Path) -> Iterator[Relay]:
    """Run any relay, by a command with ``{listen}`` and ``{upstream}`` (host:port each) in it.

    Raises:
        ProcessError: it doesn't start to listen.
    """
    listen = f"127.0.0.1:{free_port()}"
    command = [
        part.replace("{listen}", listen).replace("{upstream}", upstream).replace("{folder}", str(folder))
        for part in shlex.split(template)
    ]
    if "/" in command[0]:
        command[0] = str(Path(command[0]).absolute())
    with running(name, command, folder=folder, ready=listen) as process:
        yield Relay(name=name, target=listen, process=process)


def sidecar_command() -> list[str]:
    """Return how to start the sidecar that is installed beside this Python.

    Raises:
        RelayMissingError: it is not installed, or has no command ``serve``.
    """
    program = Path(sys.executable).parent / "kafka-telemetry"
    if not program.exists():
        raise RelayMissingError(f"the sidecar is not installed beside {sys.executable}: make setup")
    asked = subprocess.run([str(program), "serve", "--help"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        said = (asked.stderr or asked.stdout).strip().splitlines() or ["nothing"]
        raise RelayMissingError(f"the sidecar does not start: kafka-telemetry serve --help says: {said[-1]}")
    return [str(program), "serve"]


@contextlib.contextmanager
def sidecar(
    upstream: str,
    folder: Path,
    *,
    plugins: str = "[]",
    tls: CertificateFiles | None = None,
) -> Iterator[Relay]:
    """Run the sidecar in front of ``upstream`` (host:port).

    Args:
        upstream: the broker's host:port.
        folder: for its configuration, store and log.
        plugins: the configuration's ``plugins``, as YAML.
        tls: its certificate, where clients are to speak TLS.

    Raises:
        RelayMissingError: the sidecar is not installed.
        ProcessError: it doesn't start.
    """
    command = sidecar_command()
    listen, rest = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    configuration = folder / "receiver.yaml"
    configuration.write_text(
        SIDECAR_CONFIGURATION.format(
            listen=listen,
            upstream=upstream,
            tls=f", {ssl_listener(tls)}" if tls else "",
            folder=folder,
            rest=rest,
            plugins=plugins,
            limits=UNLIMITED,
        )
    )
    with running(
        "sidecar", [*command, "--config", str(configuration)], folder=folder, ready=listen
    ) as process:
        yield Relay(name="sidecar", target=listen, process=process, rest=rest, ca=tls.ca if tls else None)


def ssl_listener(tls: CertificateFiles) -> str:
    """Return what makes a listener of the sidecar's configuration speak TLS, as YAML."""
    return f'security_protocol: SSL, tls: {{certificate: "{tls.chain}", key: "{tls.key}"}}'
