"""The spool: a bounded log on disk of what a plugin's destination could not take yet.

Used so::

    spool = Spool(Path("spool/otlp"), max_bytes=1 << 30, segment_bytes=16 << 20)
    recovery = spool.open()
    spool.append(pushes)                              # on disk when it returns
    spooled = spool.read(200, 2 << 20)                # the oldest that were not read yet
    spool.commit(spooled[-1].position)                # delivered; or spool.rewind(), to read them again
    spool.close()

Every push comes out at least once, in order, also after a crash: a push that was delivered shortly before may
come again. At the bound the oldest pushes go. Damage costs the pushes in the damaged frame, and never stops
the rest.

One concern a module: ``frame`` (bytes), ``segment`` (files), ``cursor``, ``lock``, ``reader``, ``spool``,
``values``. Knows no plugin and no destination, has no thread, and writes no log.
"""

from receiver.host.spool.segment import holds_segments
from receiver.host.spool.spool import Spool
from receiver.host.spool.values import Position, Recovery, Spooled, SpoolError, SpoolStatistics

__all__ = ["Position", "Recovery", "Spool", "SpoolError", "SpoolStatistics", "Spooled", "holds_segments"]
