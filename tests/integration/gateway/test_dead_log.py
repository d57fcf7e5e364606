"""A log that can't be written: traffic, new clients and SIGTERM don't notice."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.gateway.support import (
    TIMEOUT_S,
    GatewaySidecar,
    Raw,
    api_versions,
    config,
    refusal,
    works,
)
from tests.testbed.process import wait_until
from tests.testbed.scripted_broker import ScriptedBroker

#: So many requests, each with a line in the request log, are more than a pipe holds.
REQUESTS = 400


class DeadLog(GatewaySidecar):
    """A sidecar whose log is a pipe that nobody reads, one whose reader is gone, or a full disk."""

    def __init__(self, settings: Mapping[str, Any], how: str) -> None:
        super().__init__(settings)
        self._how = how
        self._at_end = contextlib.ExitStack()

    def start(self) -> None:
        """See the base class."""
        log = self._folder() / "sidecar.log"
        if self._how == "full disk":
            log.symlink_to("/dev/full")
        else:
            os.mkfifo(log)
            reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
            self._at_end.callback(os.close, reader)
        super().start()
        if self._how == "reader gone":
            self._at_end.close()

    def log_text(self) -> str:
        """Return nothing: to read the log would be to wait for ever."""
        return ""

    def __exit__(self, *error: object) -> None:
        """See the base class."""
        with self._at_end:
            super().__exit__(*error)


@pytest.mark.parametrize(
    "how",
    ["unread pipe", *(pytest.param(how, marks=pytest.mark.full) for how in ("reader gone", "full disk"))],
)
def test_traffic_goes_on_without_a_log(how: str) -> None:
    broker = ScriptedBroker()
    with broker, DeadLog(config(broker.port, log={"requests": True}), how) as sidecar:
        with Raw(sidecar.port()) as raw:
            for _ in range(REQUESTS):
                assert raw.exchange(api_versions(3))[4:6] == b"\0\0"
        # The broker goes and comes back: that is logged too.
        broker.stop()
        assert refusal(sidecar.port())[0] in ("reset", "refused")
        wait_until(lambda: sidecar.readiness()[0] == 503, timeout_s=TIMEOUT_S, what="the broker's end")
        broker.start()
        wait_until(lambda: sidecar.readiness()[0] == 200, timeout_s=TIMEOUT_S, what="the broker's return")
        works(sidecar)
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0
