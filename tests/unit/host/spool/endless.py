"""Program that appends to a spool until it is killed, and prints the count."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.host.spool.support import opened, some


def main() -> None:
    folder, each = Path(sys.argv[1]), int(sys.argv[2])
    one = opened(folder, max_bytes=1 << 28, segment_bytes=1 << 16)
    appended = 0
    while True:
        one.append(some(appended, appended + each, size=700))
        appended += each
        sys.stdout.write(f"{appended}\n")
        sys.stdout.flush()


main()
