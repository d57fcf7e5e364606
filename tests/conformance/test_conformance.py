"""Raw requests get the same answers from Kafka with a telemetry plugin and from the receiver.

Every answer is compared byte by byte, but for what is random (``answers.py``), and so is the fate
of the connection. What differs is listed in ``differences.py``, and asserted exactly as it is
listed there.
"""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

import pytest

from tests.conformance import (
    cases_api_versions,
    cases_sasl,
    cases_stream,
    cases_telemetry,
)
from tests.conformance.answers import Seen
from tests.conformance.conversation import Case, Line
from tests.conformance.differences import DIFFERENCES, listed_differences
from tests.conformance.peer import KafkaPeer, ReceiverPeer

_CASES = (*cases_api_versions.CASES, *cases_telemetry.CASES, *cases_stream.CASES, *cases_sasl.CASES)
#: On a busy machine a peer may be too late for a pause, or a push too late for its interval. Peers
#: that really differ do so each time.
_ATTEMPTS = 3
_NOTHING = Line(step="nothing", seen=Seen(text="nothing"))


def _pairs(kafka: list[Line], receiver: list[Line]) -> list[tuple[Line, Line]]:
    return list(zip_longest(kafka, receiver, fillvalue=_NOTHING))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_answers_are_kafkas(case: Case, kafka: KafkaPeer, receiver: ReceiverPeer) -> None:
    listed = dict(listed_differences(case.name))
    for attempt in range(_ATTEMPTS):
        pairs = _pairs(case.held_with(kafka, attempt), case.held_with(receiver, attempt))
        seen = {
            number: (from_kafka.seen.text, from_receiver.seen.text)
            for number, (from_kafka, from_receiver) in enumerate(pairs, 1)
            if from_kafka != from_receiver
        }
        if seen == listed:
            return
    assert seen == listed, _transcript(pairs)


def _transcript(pairs: list[tuple[Line, Line]]) -> str:
    """Return both peers' answers line by line, for the failure message."""
    lines = []
    for number, (from_kafka, from_receiver) in enumerate(pairs, 1):
        same = "same" if from_kafka == from_receiver else "DIFFERENT"
        lines.append(f"{number}. {from_kafka.step}: {same}\n     kafka     {from_kafka.seen.text}")
        if from_kafka != from_receiver:
            lines.append(f"     receiver  {from_receiver.seen.text}")
            if from_kafka.seen.text == from_receiver.seen.text:
                lines.append(f"     kafka     {from_kafka.seen.raw.hex()}")
                lines.append(f"     receiver  {from_receiver.seen.raw.hex()}")
    return "\n" + "\n".join(lines)


def test_case_names_are_unique() -> None:
    assert [name for name, count in Counter(case.name for case in _CASES).items() if count > 1] == []


def test_every_difference_belongs_to_a_case() -> None:
    known = {case.name for case in _CASES}
    assert [name for difference in DIFFERENCES for name in difference.lines if name not in known] == []


@pytest.mark.parametrize("case", cases_sasl.UNAUTHENTICATED, ids=lambda case: case.name)
def test_nothing_is_accepted_before_authentication(case: Case, receiver: ReceiverPeer) -> None:
    before = receiver.telemetry_requests_decided()
    case.held_with(receiver)
    assert receiver.telemetry_requests_decided() == before
