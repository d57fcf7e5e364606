"""Waits between two attempts; a request to stop ends the wait."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Pause:
    """A wait that a request to stop cuts short."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopping = threading.Event()
        self._deadline = math.inf
        self._hurried = False  # whether a wait was cut short

    @property
    def stopping(self) -> bool:
        """Whether there is a deadline."""
        return self._stopping.is_set()

    def request_stop(self, deadline: float) -> None:
        """End the current wait, and let none go beyond a deadline on the clock."""
        self._deadline = deadline
        self._stopping.set()

    def __call__(self, delay_s: float) -> bool:
        """Wait; a request to stop ends the first wait early, for one more attempt at once.

        Returns:
            False if the deadline has passed or would pass during the wait.
        """
        if not self._stopping.is_set():
            if delay_s > 0:
                self._hurried = self._stopping.wait(delay_s)
            return self._clock() < self._deadline
        if delay_s > 0 and not self._hurried:
            # The request came just before this wait.
            self._hurried = True
            return self._clock() < self._deadline
        if self._clock() + delay_s >= self._deadline:
            return False
        time.sleep(delay_s)
        return True
