"""Tells a process that hangs from one that no processor is free for.

On an overloaded node, or at the end of a pod's CPU quota, a healthy process answers late. To kill
it would only add the cost of a start.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Seconds on a processor in which every healthy process answers a question.
_ENOUGH_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """What the threads of a process have had of the processors so far."""

    at_s: float
    """When it was read, in monotonic seconds."""
    ran_s: float
    waited_s: float
    """Seconds that they could have run, and no processor was free."""


def processor_time(pid: int, now_s: float) -> ProcessorTime:
    """Read the time of a process from ``schedstat`` in proc(5).

    It is zero where the kernel does not tell.
    """
    ran = waited = 0
    with suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                ran_ns, waited_ns, _ = (task / "schedstat").read_text().split()
                ran += int(ran_ns)
                waited += int(waited_ns)
    return ProcessorTime(at_s=now_s, ran_s=ran / 1e9, waited_s=waited / 1e9)


def is_starved(before: ProcessorTime, after: ProcessorTime) -> bool:
    """Tell whether a process waited for a processor and hardly ran."""
    ran_s = after.ran_s - before.ran_s
    waited_s = after.waited_s - before.waited_s
    return ran_s < _ENOUGH_S and waited_s > (after.at_s - before.at_s) / 2
