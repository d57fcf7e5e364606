"""The plugin host: finds plugins, gives each a thread and a bounded queue, and contains their failures.

Used so::

    host = PluginHost(load_plugins(settings.plugins))
    host.start()
    host.offer(push)                                  # from the event loop: never waits, never raises
    await asyncio.to_thread(host.stop, drain_time_s)

One concern a module: ``discovery``, ``settings``, ``queue``, ``retry``, ``observe`` (one export), ``sender``
(the chain and the lifecycle), ``statistics``, ``failure_log``. Knows no destination, and of the receiver only
the plugin contract and the wording of settings errors.
"""

from receiver.host.discovery import HostedPlugin, PluginConfigError, installed_types, load_plugins
from receiver.host.host import PluginHost
from receiver.host.settings import BatchSettings, HostSettings, QueueSettings, RetrySettings
from receiver.host.statistics import DropReason, PluginState, PluginStatistics

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
