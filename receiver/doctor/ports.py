"""Findings about the addresses that the receiver binds: free, or held by it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence

from receiver.doctor.findings import Area, Finding, failed, ok
from receiver.host.discovery import HostedPlugin
from receiver.settings.hostport import HostPort
from receiver.settings.model import ReceiverSettings
from spark_streaming.system_errors import reason_of


def addresses(settings: ReceiverSettings, plugins: Iterable[HostedPlugin]) -> Iterator[tuple[str, HostPort]]:
    """Yield what the receiver binds, each with its setting."""
    for index, listener in enumerate(settings.listeners):
        yield f"listeners[{index}].bind", listener.bind
    yield "rest.bind", settings.rest.bind
    if settings.bridge is not None and isinstance(settings.bridge.bind, HostPort):
        yield "bridge.bind", settings.bridge.bind
    for index, plugin in enumerate(plugins):
        bind = plugin.config.get("bind")
        if isinstance(bind, str):
            try:
                yield f"plugins[{index}].bind", HostPort.parse(bind)
            except ValueError:
                continue  # the plugin's own form of an address


def check_free(setting: str, address: HostPort) -> Finding:
    """Tell whether the receiver could bind an address now.

    It is bound for a moment only.
    """
    subject = f"{setting} {address}"
    if address.port == 0:
        return ok(Area.PORTS, "port", subject, "the system will choose a free port")
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, target = found[0]
        with socket.socket(family, kind, protocol) as trial:
            # As the receiver does it: connections that have just ended don't matter.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(target)
    except socket.gaierror as error:
        return failed(Area.PORTS, "port", subject, reason_of(error), f"correct the host of {setting}")
    except OSError as error:
        return _not_free(setting, address, error)
    return ok(Area.PORTS, "port", subject, "free")


def _not_free(setting: str, address: HostPort, error: OSError) -> Finding:
    subject = f"{setting} {address}"
    if error.errno == errno.EADDRINUSE:
        return failed(
            Area.PORTS,
            "port",
            subject,
            "another program holds the port, and no receiver of this configuration runs",
            f"stop that program (`ss -ltnp 'sport = :{address.port}'` names it), or change {setting}",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        problem, fix = "the address is not this machine's", f"correct the host of {setting}, or bind 0.0.0.0"
    elif error.errno == errno.EACCES:
        problem, fix = "this user may not bind the port", f"choose a port above 1023 in {setting}"
    else:
        problem, fix = os.strerror(error.errno or 0), f"correct {setting}"
    return failed(Area.PORTS, "port", subject, problem, fix)


def check_held(
    settings: ReceiverSettings,
    plugins: Sequence[HostedPlugin],
    running: Mapping[str, str],
) -> list[Finding]:
    """Tell whether the running receiver has the configured addresses.

    Args:
        running: The addresses of the running receiver's listeners, by name.
    """
    findings = []
    for (setting, address), listener in zip(addresses(settings, plugins), settings.listeners, strict=False):
        subject = f"{setting} {address}"
        bound = running.get(listener.name)
        if bound == str(address):
            findings.append(ok(Area.PORTS, "port", subject, "held by the running receiver"))
        else:
            seen = (
                f"the running receiver has no listener {listener.name}"
                if bound is None
                else f"the running receiver binds {bound}"
            )
            fix = "let the receiver read this configuration (SIGHUP), or examine the one that it runs with"
            findings.append(failed(Area.PORTS, "port", subject, seen, fix))
    return findings
