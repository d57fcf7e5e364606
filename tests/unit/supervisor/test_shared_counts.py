"""Counts that all processes see."""

from __future__ import annotations

import os

import pytest

from receiver.supervisor.shared_counts import SharedCounts


def test_every_process_sees_the_total_of_all() -> None:
    counts = SharedCounts()
    ours, theirs = counts.claim(), counts.claim()
    ours.add("192.0.2.1", 3)
    ours.add("192.0.2.2", 40)
    pid = os.fork()
    if pid == 0:
        theirs.add("192.0.2.1", 500)
        theirs.add("192.0.2.1", -100)
        os._exit(0 if theirs.total("192.0.2.1") == 403 else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ours.total("192.0.2.1") == 403
    assert ours.total("192.0.2.2") == 40


def test_the_counts_of_a_process_end_with_it() -> None:
    counts = SharedCounts()
    stays, dies = counts.claim(), counts.claim()
    stays.add("", 1)
    dies.add("", 2)
    counts.release(dies)
    assert stays.total("") == 1
    successor = counts.claim()
    assert successor.number == dies.number
    successor.add("", 4)
    counts.release(stays)
    assert successor.total("") == 4


def test_there_may_be_256_relays_and_as_many_that_drain() -> None:
    counts = SharedCounts()
    claimed = [counts.claim() for _ in range(512)]
    claimed[-1].add("", 7)
    assert claimed[0].total("") == 7
    with pytest.raises(OSError, match="512 relays run already"):
        counts.claim()
    counts.release(claimed[3])
    assert counts.claim().number == 3


def test_a_process_sees_who_has_the_fewest_connections() -> None:
    counts = SharedCounts()
    ours, theirs = counts.claim(), counts.claim()
    assert ours.fewest_connections() is None
    ours.set_connections(7)
    theirs.set_connections(0)
    ours.add("192.0.2.1", 3)  # is no connection
    assert ours.fewest_connections() == theirs.fewest_connections() == 0
    theirs.set_connections(9)
    assert ours.fewest_connections() == 7
    ours.set_connections(None)
    assert ours.fewest_connections() == 9
    counts.release(theirs)
    assert ours.fewest_connections() is None
