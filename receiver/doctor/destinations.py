"""Findings about the destinations of plugins: each plugin type proves its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from receiver.amounts import count_text
from receiver.doctor.findings import Area, Finding, failed, ok, unknown, warning
from receiver.doctor.limits import PROBE_S, all_of
from receiver.host.discovery import HostedPlugin, load_plugins
from receiver.host.redaction import Redaction
from receiver.plugin import ExportError
from receiver.settings.errors import SettingsError

#: Keys that would put the plugin into another process, which answers exports only.
_ISOLATION_KEYS: Final = frozenset({"isolation", "process"})

#: What a plugin gets of the time limit, so that its own error arrives in time.
_SHARE: Final = 0.8


async def check_destinations(plugins: Sequence[HostedPlugin]) -> list[Finding]:
    """Let each plugin prove its destination, and look at the folder of its spool."""
    entries = [
        {key: value for key, value in plugin.config.items() if key not in _ISOLATION_KEYS}
        for plugin in plugins
    ]
    try:
        here = load_plugins(entries)
    except SettingsError as error:  # a file of a secret has changed since the configuration was read
        fix = "correct it, and examine again"
        return [failed(Area.PLUGIN, "destination", "plugins", str(error), fix)]
    checks = [_check(plugin.name, loaded) for plugin, loaded in zip(plugins, here, strict=True)]
    spools = [finding for plugin in plugins if (finding := _spool(plugin)) is not None]
    return [*await all_of(checks), *spools]


async def _check(name: str, hosted: HostedPlugin) -> Finding:
    subject = f"plugin {name}"
    redaction = Redaction(hosted.plugin.config)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def settle(result: str | None, error: BaseException | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

    def run() -> None:
        result, problem = None, None
        try:
            result = hosted.plugin.check_destination(PROBE_S * _SHARE)
        except Exception as error:  # a plugin may raise anything
            problem = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, problem)

    # A daemon, because a call that hangs must not keep the process from its end.
    threading.Thread(target=run, name=f"check-{name}", daemon=True).start()
    try:
        async with asyncio.timeout(PROBE_S):
            seen = await done
    except TimeoutError:
        fix = "look at the destination, and at the network between"
        return failed(Area.PLUGIN, "destination", subject, f"no answer within {PROBE_S:g} s", fix)
    except ExportError as error:
        fix = f"start the destination, or correct the settings of the plugin {name}"
        return failed(Area.PLUGIN, "destination", subject, redaction.text(str(error)), fix)
    except Exception as error:
        fix = f"correct the settings of the plugin {name}, or report this to its author"
        return failed(Area.PLUGIN, "destination", subject, redaction.exception(error), fix)
    if seen is None:
        return unknown(
            Area.PLUGIN,
            "destination",
            subject,
            f"the type {hosted.type} can't prove its destination",
            "let a client push, and look at `exported` in `kafka-telemetry plugins`",
        )
    return ok(Area.PLUGIN, "destination", subject, redaction.text(str(seen)))


def _spool(plugin: HostedPlugin) -> Finding | None:
    path = plugin.spool_path
    if path is None:
        return None
    subject = f"spool of plugin {plugin.name}"
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return failed(
            Area.PLUGIN,
            "spool",
            subject,
            f"this user can't write to {existing}",
            "give the receiver's user the folder, or set spool.path or delivery: memory",
        )
    return ok(Area.PLUGIN, "spool", subject, f"{path}: can be written")


def delivery_findings(plugins: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return what the running receiver says of its plugins (``/v1/plugins``)."""
    return [_delivery(plugin) for plugin in plugins]


def _delivery(plugin: Mapping[str, Any]) -> Finding:
    subject = f"plugin {plugin['name']}"
    spool = plugin.get("spool") or {}
    waiting = plugin["queue"]["pushes"] + plugin["in_flight"] + spool.get("pushes", 0)
    if spool.get("problem"):
        fix = "make room or repair the disk; docs/delivery.md describes the spool"
        return failed(Area.PLUGIN, "delivery", subject, f"spool: {spool['problem']}", fix)
    if plugin.get("files_problem"):  # an earlier version has none
        fix = "correct the file; the receiver reads it again by itself"
        seen = f"changed files can't be used, the old ones stay: {plugin['files_problem']}"
        return failed(Area.PLUGIN, "delivery", subject, seen, fix)
    if plugin["consecutive_failures"]:
        seen = f"{count_text(plugin['consecutive_failures'], 'failed export')} in a row, {_waiting(waiting)}"
        seen += f": {plugin['last_error']}" if plugin["last_error"] else ""
        fix = "repair the destination; the receiver tries again by itself"
        return failed(Area.PLUGIN, "delivery", subject, seen, fix)
    if plugin["state"] != "running":
        fix = "look at the receiver's log; docs/delivery.md describes a plugin's states"
        seen = f"its state is {plugin['state']}, {_waiting(waiting)}"
        return failed(Area.PLUGIN, "delivery", subject, seen, fix)
    dropped = {reason: count for reason, count in plugin["dropped"].items() if count}
    if dropped:
        counted = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        fix = "docs/delivery.md says what each reason means; the counters start at 0 with the receiver"
        return warning(Area.PLUGIN, "delivery", subject, f"pushes were dropped: {counted}", fix)
    return ok(Area.PLUGIN, "delivery", subject, f"exported: {plugin['exported']}, {_waiting(waiting)}")


def _waiting(pushes: int) -> str:
    return f"{count_text(pushes, 'push', 'pushes')} {'waits' if pushes == 1 else 'wait'}"
