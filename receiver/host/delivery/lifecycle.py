"""Starts, restarts and stops a plugin on the sender's thread.

Owns the handling of their exceptions and the back-off between starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from receiver.host.delivery.pause import Pause
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.statistics import PluginState, Tally
from receiver.host.failure_log import FailureLog
from receiver.host.redaction import Redaction
from receiver.plugin import ClientTelemetryReceiver


class PluginLifecycle:
    """Starts, restarts and stops a plugin, and handles all its exceptions."""

    def __init__(
        self,
        plugin: ClientTelemetryReceiver,
        *,
        tally: Tally,
        log: FailureLog,
        redaction: Redaction,
        policy: RetryPolicy,
        pause: Pause,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._plugin = plugin
        self._tally = tally
        self._log = log
        self._redaction = redaction
        self._policy = policy
        self._pause = pause
        self._clock = clock
        self._rng = rng
        self._crashes = 0

    def start(self) -> bool:
        """Start the plugin, and retry until it succeeds; return False at the deadline."""
        failures = 0
        while True:
            try:
                self._tally.call_began(self._clock())
                self._plugin.start()
            except BaseException as error:  # the contract: a failed start is tried again
                failures += 1
                text = self._redaction.exception(error)
                self._tally.failed(text)
                self._log.limited("plugin failed to start, will be retried", error=text)
            else:
                self._log.info("plugin started", failures=self._tally.succeeded())
                self._tally.entered(PluginState.RUNNING)
                return True
            finally:
                self._tally.call_ended()
            if not self._pause(self._policy.backoff_s(failures, self._rng())):
                return False

    def restart(self) -> bool:
        """Restart a crashed plugin after a back-off; return False at the deadline.

        The back-off grows with each crash in a row.
        """
        self._crashes += 1
        self._tally.entered(PluginState.RESTARTING)
        self.stop()
        if not self._pause(self._policy.backoff_s(self._crashes, self._rng())):
            return False
        self._tally.restarted()
        return self.start()

    def worked(self) -> None:
        """Reset the count of crashes in a row."""
        self._crashes = 0

    def stop(self) -> None:
        """Stop the plugin; it may be started again."""
        try:
            self._tally.call_began(self._clock())
            self._plugin.stop()
        except BaseException as error:  # the plugin is not used further
            text = self._redaction.exception(error)
            self._tally.failed(text)
            self._log.error("plugin failed to stop", error=text)
        finally:
            self._tally.call_ended()
