"""A plugin's start and stop, as often as it takes, on the plugin's own thread.

Owns the containment of both and the back-off between starts. What is exported meanwhile is the sender's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from receiver.host.delivery.failure_log import FailureLog, Redaction
from receiver.host.delivery.pause import Pause
from receiver.host.delivery.retry import RetryPolicy
from receiver.host.delivery.statistics import PluginState, Tally
from receiver.plugin import ClientTelemetryReceiver

__all__ = ["PluginLifecycle"]


class PluginLifecycle:
    """Starts, restarts and stops a plugin; whatever it raises ends here.

    Args:
        plugin: The plugin.
        tally: Where calls and failures are counted.
        log: Where they are told.
        redaction: Takes secrets out of what the plugin says.
        policy: The back-off between starts.
        pause: Waits.
        clock: Monotonic seconds.
        rng: Uniform numbers in [0, 1), for the jitter.
    """

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
        """Start the plugin, again after a back-off until it succeeds; False when the deadline comes first."""
        failures = 0
        while True:
            try:
                self._tally.call_began(self._clock())
                self._plugin.start()
            except BaseException as error:  # the contract: a failed start is tried again
                failures += 1
                said = self._redaction.exception(error)
                self._tally.failed(said)
                self._log.limited("plugin failed to start, will be tried again", error=said)
            else:
                self._log.info("plugin started", failures=self._tally.succeeded())
                self._tally.entered(PluginState.RUNNING)
                return True
            finally:
                self._tally.call_ended()
            if not self._pause(self._policy.backoff_s(failures, self._rng())):
                return False

    def restart(self) -> bool:
        """Stop a plugin that crashed and start it after a back-off, which grows with crashes in a row.

        Returns:
            False when the deadline comes first.
        """
        self._crashes += 1
        self._tally.entered(PluginState.RESTARTING)
        self.stop()
        if not self._pause(self._policy.backoff_s(self._crashes, self._rng())):
            return False
        self._tally.restarted()
        return self.start()

    def worked(self) -> None:
        """The plugin exported something: the next crash is the first again."""
        self._crashes = 0

    def stop(self) -> None:
        """Stop the plugin; it may be started again."""
        try:
            self._tally.call_began(self._clock())
            self._plugin.stop()
        except BaseException as error:  # it is over anyhow
            said = self._redaction.exception(error)
            self._tally.failed(said)
            self._log.error("plugin failed to stop", error=said)
        finally:
            self._tally.call_ended()
