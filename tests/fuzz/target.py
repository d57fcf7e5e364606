"""Owns what a fuzz target is, and what it says when it found something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

MIB = 1 << 20


class DefectError(Exception):
    """An invariant does not hold; the text says which."""


def require(holds: bool, problem: str) -> None:
    """Raise unless something holds.

    Raises:
        DefectError: It does not.
    """
    if not holds:
        raise DefectError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that reads bytes which somebody else sent.

    Attributes:
        name: What findings and figures are filed under.
        run: Takes one input. Whatever it raises is a finding: errors that are declared for bad
            input it catches itself, and what must hold it checks itself. The same input has the
            same outcome every time.
        seeds: Makes the inputs to begin with, real ones where there are any.
        tokens: Byte strings that mean something, to be put into inputs.
        reshape: Changes an input in the format's own terms; used for every other input. None: bytes
            alone.
        max_bytes: The longest input.
        max_memory: By how many bytes one input may raise the process's peak.
        brief: How many inputs a short run takes.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    tokens: Sequence[bytes] = ()
    reshape: Callable[[bytes, Random], bytes] | None = None
    max_bytes: int = 4096
    max_memory: int = 64 * MIB
    brief: int = 20_000
