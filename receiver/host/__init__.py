"""Runs plugins with their own threads and queues, and isolates their failures.

Usage::

    host = PluginHost(load_plugins(settings.plugins))
    host.start()
    host.offer(push, stored)  # from the event loop: never waits, never raises
    await asyncio.to_thread(host.stop, drain_time_s)

``host`` has the entry point, and ``discovery`` finds and constructs plugins. ``delivery`` has the
queue, sender thread, retries and statistics of one plugin, ``spool`` the queue on disk, and
``isolation`` plugins in child processes. The package imports none of them, so that a child process
starts fast. The host knows no destination. Of the receiver it knows only the plugin contract and
the wording of settings errors.
"""
