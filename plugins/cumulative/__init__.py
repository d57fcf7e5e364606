"""Delta to cumulative: what clients counted since their last push becomes what they counted in all.

Owns the state of every series of every client instance, its start, its end, and the budget of series and
bytes that peers share. Pure: no clock (a push says when it was received), no thread, no I/O. It must not know
where the result goes.

Identity. A series is one metric's name, unit and kind, with one set of attributes, of one Resource of one
client instance. The Resource belongs to it, because a destination tells series apart by it: one that goes on
counting under another Resource would there be a new series that begins with old counts. Which parts of the
Resource count is for the caller to say (``identify``).

Start. A series starts where its first delta starts; what was counted before is not in it. The state outlives
neither the process nor the instance's silence (three push intervals) nor its terminating push: what comes
later starts anew. So when a client goes on at another broker, the receiver there starts at the first delta
that it gets, the series here ends, and every delta is in exactly one of the two.

Repeats. A push whose idempotency key or whose bytes were seen adds nothing, nor does a delta whose time is
not after that of the last one in its series. An export that is tried again must not ask again: :class:`Once`
keeps what was made of its pushes.
"""

from plugins.cumulative.cumulative import DEFAULT_MAX_BYTES, Cumulative
from plugins.cumulative.heaviest import Heaviest
from plugins.cumulative.histograms import ExponentialTotal
from plugins.cumulative.once import Once
from plugins.cumulative.peer import peer_of
from plugins.cumulative.series import Kind, Series, Target
from plugins.cumulative.taken import Ended, Taken

__all__ = [
    "DEFAULT_MAX_BYTES",
    "Cumulative",
    "Ended",
    "ExponentialTotal",
    "Heaviest",
    "Kind",
    "Once",
    "Series",
    "Taken",
    "Target",
    "peer_of",
]
