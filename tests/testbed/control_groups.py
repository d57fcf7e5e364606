"""Real control groups with a memory limit, for a test's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path("/sys/fs/cgroup")
#: The file with the limit, by the versions of control groups.
LIMITS: Final = ("memory.limit_in_bytes", "memory.max")


@contextmanager
def limited(file: str, size: int) -> Iterator[Sequence[str]]:
    """Make a group, and yield the words before a command that runs in it.

    A test is skipped where no such group can be made.

    Args:
        file: One of :data:`LIMITS`.
        size: The limit in bytes.
    """
    try:
        group = _made("memory", file)
    except OSError:
        group = None
    if group is None:
        pytest.skip(f"no group with {file} can be made here")
    try:
        (group / file).write_text(str(size))
        yield ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group))
    finally:
        group.rmdir()


def _made(controller: str, file: str) -> Path | None:
    """A group with a controller: in version 1's folder, or in version 2's."""
    for mount in (_ROOT / controller, _ROOT):
        if (mount / "cgroup.procs").is_file() and os.access(mount, os.W_OK):
            group = mount / f"kafka-telemetry-test-{os.getpid()}"
            group.mkdir()
            if (group / file).is_file():
                return group
            group.rmdir()
    return None
