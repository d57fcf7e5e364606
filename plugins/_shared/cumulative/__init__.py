"""Converts delta metrics to cumulative ones.

It holds the state of every series of every client instance and the budget of series and bytes that
peers share. It has no clock, thread or I/O: the time is a push's receive time.

Identity. A series is one metric name, unit and kind with one set of attributes, under one Resource
of one client instance. The Resource belongs to the identity because a destination distinguishes
series by it. If a series continued under another Resource, the destination would see a new series
that starts at an old count. The caller's ``identify`` chooses which parts of the Resource count.

Start. A series starts where its first delta starts; earlier counts are not in it. The state ends
with the process, with the instance's terminating push, or after three push intervals of silence; a
later push starts a new series. When a client moves to another broker, the receiver there starts at
the first delta it gets and the series here ends. So every delta is in exactly one of the two.

Repeats. A push with a known idempotency key or known bytes adds nothing. Neither does a delta whose
time is not after that of its series' last one. A retried export must not accumulate again:
:class:`ExportCache` keeps the results of its pushes.
"""

from plugins._shared.cumulative.export_cache import ExportCache
from plugins._shared.cumulative.histograms import ExponentialTotal
from plugins._shared.cumulative.instances import Target, peer_of
from plugins._shared.cumulative.result import Ended, Result
from plugins._shared.cumulative.series import Kind, Series
from plugins._shared.cumulative.state import DEFAULT_MAX_BYTES, Cumulative

__all__ = [
    "DEFAULT_MAX_BYTES",
    "Cumulative",
    "Ended",
    "ExponentialTotal",
    "ExportCache",
    "Kind",
    "Result",
    "Series",
    "Target",
    "peer_of",
]
