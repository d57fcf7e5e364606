"""The ports of plugins: those that two parts share, or another program has."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence

from receiver.host.discovery import HostedPlugin, PluginConfigError
from receiver.settings.hostport import HostPort
from receiver.settings.model import ReceiverSettings
from spark_streaming.plain_yaml import key_text
from spark_streaming.system_errors import reason_of


def shared_ports(settings: ReceiverSettings, plugins: Sequence[HostedPlugin]) -> Iterator[PluginConfigError]:
    """Yield an error for each plugin that listens where another part does.

    The settings compare the ports of their own parts.
    """
    taken = _own_ports(settings)
    for index, plugin in enumerate(plugins):
        if (bind := _bind_of(plugin)) is None:
            continue
        for owner, other in taken:
            if _collide(bind, other):
                yield _error(index, bind, f"{owner} listens on {other} already: choose another port")
                break
        taken.append((f"plugins[{index}]", bind))


def check_ports(
    settings: ReceiverSettings,
    plugins: Sequence[HostedPlugin],
    *,
    before: ReceiverSettings,
    running: Sequence[HostedPlugin],
) -> None:
    """Check that each new plugin of a configuration can listen on its address.

    Args:
        before: The configuration in force, whose ports are given up as far as the new one lacks
            them.

    Raises:
        PluginConfigError: Another part of the receiver, or another program, has the port.
    """
    for error in shared_ports(settings, plugins):
        raise error
    leaving = [_bind_of(plugin) for plugin in running if plugin not in plugins]
    free = {bind.port for bind in (*leaving, *(bind for _, bind in _own_ports(before))) if bind is not None}
    for index, plugin in enumerate(plugins):
        bind = _bind_of(plugin)
        if plugin in running or bind is None or bind.port in free:
            continue
        if (reason := _refusal(bind)) is not None:
            problem = f"cannot listen there: {reason}: choose another address, or stop what has it"
            raise _error(index, bind, problem)


def _own_ports(settings: ReceiverSettings) -> list[tuple[str, HostPort]]:
    """Return the addresses that the receiver itself listens on, with the keys."""
    ports = [
        (f"listeners[{index}]", bind)
        for index, listener in enumerate(settings.listeners)
        for bind in listener.binds
    ]
    ports.append(("rest", settings.rest.bind))
    if settings.bridge is not None and isinstance(settings.bridge.bind, HostPort):
        ports.append(("bridge", settings.bridge.bind))
    return ports


def _bind_of(plugin: HostedPlugin) -> HostPort | None:
    """Return the address of a plugin's key ``bind``; None without one."""
    bind = plugin.config.get("bind")
    if not isinstance(bind, str):
        return None
    try:
        return HostPort.parse(bind)
    except ValueError:
        return None  # the plugin's own words


def _collide(one: HostPort, other: HostPort) -> bool:
    same_host = one.host == other.host or one.is_wildcard or other.is_wildcard
    return one.port == other.port != 0 and same_host


def _refusal(bind: HostPort) -> str | None:
    """Return why nothing can listen on an address; None if something can."""
    try:
        found = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1)
    except socket.gaierror as error:
        return f"the host is not known: {reason_of(error)}"
    except OSError as error:
        return reason_of(error)
    return None


def _error(index: int, bind: HostPort, problem: str) -> PluginConfigError:
    loc = ("plugins", index, "bind")
    return PluginConfigError("", key_text(loc), problem, json.dumps(str(bind)), loc)
