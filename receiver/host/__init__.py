"""Runs plugins with their own threads and queues, and isolates their failures.

Usage::

    host = PluginHost(load_plugins(settings.plugins)) host.start() host.offer(push, stored)
    # from the event loop: never waits, never raises await asyncio.to_thread(host.stop,
    drain_time_s)

``discovery`` finds and constructs plugins. ``delivery`` has the queue, sender thread, retries and
statistics of one plugin, ``spool`` the queue on disk, and ``isolation`` plugins in child processes.
The host knows no destination. Of the receiver it knows only the plugin contract and the wording of
settings errors.
"""

from receiver.host.delivery.statistics import DropReason, PluginState, PluginStatistics
from receiver.host.discovery import HostedPlugin, PluginConfigError, installed_types, load_plugins
from receiver.host.host import PluginHost
from receiver.host.settings import BatchSettings, HostSettings, QueueSettings, RetrySettings

__all__ = [
    "BatchSettings",
    "DropReason",
    "HostSettings",
    "HostedPlugin",
    "PluginConfigError",
    "PluginHost",
    "PluginState",
    "PluginStatistics",
    "QueueSettings",
    "RetrySettings",
    "installed_types",
    "load_plugins",
]
