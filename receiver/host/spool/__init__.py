"""Bounded log on disk for pushes that a destination could not accept yet.

Usage::

    spool = Spool(Path("spool/otlp"), max_bytes=1 << 30, segment_bytes=16 << 20)
    recovery = spool.open()
    spool.append(pushes)  # on disk when it returns
    spooled = spool.read(200, 2 << 20)  # the oldest that were not read yet
    spool.commit(spooled[-1].position)  # delivered; spool.rewind() reads them again
    spool.close()

The spool delivers every push at least once, in order. After a crash, pushes that were delivered
shortly before may come again. At the bound it drops the oldest pushes. Damage costs only the pushes
in the damaged frame.

``frame`` has the format, ``segment`` the files, ``cursor`` the delivered position, ``reader`` and
``spool`` reading and writing. ``disk`` retries a failing spool and ``disk_account`` counts its
pushes for the queue. The spool itself knows no plugin, has no thread, and writes no log.
"""

from receiver.host.spool.segment import holds_segments
from receiver.host.spool.spool import Spool
from receiver.host.spool.values import Position, Recovery, Spooled, SpoolError, SpoolStatistics

__all__ = ["Position", "Recovery", "Spool", "SpoolError", "SpoolStatistics", "Spooled", "holds_segments"]
