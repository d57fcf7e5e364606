"""Control of clients: how much each peer may use, and who pushes less.

* ``limits``: connections, requests, CPU time and bytes of each peer.
* ``plugin_time``: charges the CPU time of plugins to the peers whose pushes used it.
* ``series``: budgets of series for each client, principal and address block.
* ``series_history``: limits on new series of each client instance and peer.
* ``backpressure``: lengthens push intervals while a destination is behind.
* ``offenders``: reduces the subscriptions of clients that push too much.
"""
