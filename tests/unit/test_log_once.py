"""Lines that several processes have to tell are logged once."""

from __future__ import annotations

import os
import subprocess
import sys

from receiver.log_once import _Table

#: Four processes log the same lines about a listener; one sees something else in between.
PROGRAM = """
import os, structlog
from receiver import log_once
from receiver.log import configure
from receiver.settings.model import LogSettings
log_once.install()
configure(LogSettings(format="json"))
log = structlog.get_logger()
for _ in range(4):
    if not os.fork():
        for number in range(50):
            log.info("accepts", once="listener CLIENT %d" % number, number=number)
        log.info("always")
        os._exit(0)
    os.wait()
"""


def test_processes_share_what_was_logged() -> None:
    logged = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = logged.stderr.splitlines()
    assert sum('"accepts"' in line for line in lines) == 50
    assert sum('"always"' in line for line in lines) == 4
    assert "once" not in logged.stderr


def test_a_line_is_new_once_the_last_one_was_another() -> None:
    table = _Table()
    try:
        assert table.is_new("broker", "away")
        assert not table.is_new("broker", "away")
        assert table.is_new("another broker", "away")
        assert table.is_new("broker", "answers")
        assert table.is_new("broker", "away")
    finally:
        os.close(table.file)
