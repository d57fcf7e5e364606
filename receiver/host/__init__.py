"""The plugin host: finds plugins, gives each threads and a bounded delivery log, and contains their failures.

Used so::

    host = PluginHost(load_plugins(settings.plugins))
    host.start()
    host.offer(push, stored)                          # from the event loop: never waits, never raises
    await asyncio.to_thread(host.stop, drain_time_s)

One concern a module: ``discovery`` and ``settings``; ``queue`` (memory), ``spool`` (disk), ``delivery_log``
and ``spooled_log`` (their order, and the account of every push); ``retry``, ``observe`` (one export),
``lifecycle``, ``sender`` (the chain), ``spooler``; ``process_plugin``; ``delivery`` (all of one plugin),
``statistics``, ``failure_log``. Knows no destination, and of the receiver only the plugin contract and the
wording of settings errors.
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
