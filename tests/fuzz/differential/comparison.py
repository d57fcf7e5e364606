"""Compares what a script brought back from the broker and through the gateway."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fuzz.differential.codec import MalformedError, Tree, decode
from tests.fuzz.differential.conversation import Transcript
from tests.fuzz.differential.documented import Answer, Gateway, differs, expected, telemetry_problem
from tests.fuzz.differential.schemas import Api
from tests.fuzz.differential.script import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    TELEMETRY,
    Script,
    Step,
)
from tests.fuzz.differential.sides import Listener, Path, Side
from tests.fuzz.differential.volatile import normalised

_NONE, _INVALID_REQUEST = 0, 42
_CORRELATION_ID_BYTES = 4
_FIRST_FLEXIBLE_LOGIN = 2
#: How long the gateway waits for the broker's answers in front of malformed bytes.
_REFUSED_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One difference.

    Attributes:
        what: What differs, in one line.
        step: The request; None if it belongs to no request.
        direct: The broker's answer; None if there was none.
        gateway: The gateway's.
    """

    what: str
    step: Step | None = None
    direct: bytes | None = None
    gateway: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Answered:
    step: Step
    data: bytes
    side: Side

    def cleared(self) -> _Answered:
        """Return the answer with marks in the place of the side's names."""
        return _Answered(self.step, self.side.clear(self.data), self.side)


class Comparison:
    """Compares the sides of a round.

    Args:
        apis: Kafka's definitions.
        gateways: The addresses that each rewriting listener gives out.
    """

    def __init__(self, apis: Mapping[int, Api], gateways: Mapping[Listener, Gateway]) -> None:
        self._apis = apis
        self._gateways = gateways

    def problem(self, script: Script, direct: Transcript, other: Transcript) -> Problem | None:
        """Return the first difference between the broker and another way to it; None: none."""
        there, here = _Matched(script, direct), _Matched(script, other)
        problem = there.problem or here.problem
        if problem is not None:
            return problem
        problem = self._telemetry_problem(here)
        if problem is not None:
            return problem
        return self._difference(script, there, here)

    def _telemetry_problem(self, here: _Matched) -> Problem | None:
        for answered in here.answered:
            if answered.step.api_key in TELEMETRY:
                try:
                    what = telemetry_problem(answered.step, self._decode(answered))
                except MalformedError as error:
                    what = f"a malformed answer: {error}"
                if what is not None:
                    return Problem(
                        what=f"the gateway answers {what}", step=answered.step, gateway=answered.data
                    )
        return None

    def _difference(self, script: Script, there: _Matched, here: _Matched) -> Problem | None:
        path = here.transcript.side.path
        passes = False  # whether the gateway has stopped to read
        ours = [answered for answered in here.answered if answered.step.api_key not in TELEMETRY]
        for number, (before, after) in enumerate(itertools.zip_longest(there.answered, ours), 1):
            if before is None or after is None:
                if script.ending == "reset":
                    return None
                if self._may_be_lost(script, before or after, there, here) or _took_long(script, here):
                    return None
                return self._one_missing(before, after, here)
            problem = self._answer_problem(
                before, after, path="direct" if passes else path, listener=script.listener
            )
            if problem is not None:
                return problem
            if path != "direct" and not passes and _ends_connection(before):
                closes = here.transcript.end in ("closed", "left") and len(ours) == number
                return None if closes else _open(before.step)
            passes |= path == "kept" and _ends_reading(before)
        return _end_problem(script, there.transcript, here.transcript)

    def _may_be_lost(
        self, script: Script, missing: _Answered | None, there: _Matched, here: _Matched
    ) -> bool:
        """Return whether Kafka may lose an answer that only one side has.

        It answers a login that fails, and closes. If the client has sent more, the system may drop
        what has not left yet. So the last answer may be missing on either side.
        """
        if missing is None or script.listener != "SASL":
            return False
        if not there.transcript.end == here.transcript.end == "closed":
            return False
        longer = max(there.answered, here.answered, key=len)
        return longer[-1] is missing and not any(_logs_in(answered) for answered in longer)

    def _one_missing(
        self, before: _Answered | None, after: _Answered | None, here: _Matched
    ) -> Problem | None:
        if after is not None:
            return Problem(what="only the gateway answers", step=after.step, gateway=after.data)
        if before is None:
            return None
        if here.transcript.side.path == "rewritten" and _is_refused(before.step):
            return None if here.transcript.end == "closed" else _open(before.step)
        what = f"only the broker answers; the gateway's end: {here.transcript.end}"
        return Problem(what=what, step=before.step, direct=before.data)

    def _answer_problem(
        self, before: _Answered, after: _Answered, *, path: Path, listener: Listener
    ) -> Problem | None:
        def problem(what: str) -> Problem:
            return Problem(what=what, step=before.step, direct=before.data, gateway=after.data)

        if before.step is not after.step:
            return problem(f"the gateway answers another request first: {after.step.what}")
        pairs = [(before, after), (before.cleared(), after.cleared())]
        same = any(pair.data == other.data for pair, other in pairs)
        if same and not differs(before.step.api_key, path):
            return None
        if not self._is_known(before.step):
            return None if same else problem("other bytes")
        # An answer either names the sides of all rounds, or what this request names.
        found = ""
        for pair, other in pairs:
            try:
                broker = self._decode(pair)
            except MalformedError as error:
                return problem(f"the broker's answer is malformed: {error}")
            try:
                gateway = self._decode(other)
            except MalformedError as error:
                return problem(f"the gateway's answer is malformed: {error}")
            difference_found = self._difference_of(pair, broker, gateway, path=path, listener=listener)
            if difference_found is None:
                return None
            found = difference_found
        return problem(found)

    def _difference_of(
        self, before: _Answered, broker: Tree, gateway: Tree, *, path: Path, listener: Listener
    ) -> str | None:
        key = before.step.api_key or 0
        wanted = broker
        if path != "direct":
            answer = Answer(
                step=before.step,
                api=self._apis[key],
                tree=broker,
                size=len(before.data),
                path=path,
                gateway=self._gateways[listener],
            )
            wanted = expected(answer)
        return difference(normalised(key, wanted), normalised(key, gateway))

    def _is_known(self, step: Step) -> bool:
        api = self._apis.get(-1 if step.api_key is None else step.api_key)
        return api is not None and step.version in api.versions

    def _decode(self, answered: _Answered) -> Tree:
        step = answered.step
        api = self._apis[step.api_key or 0]
        version = step.version
        flexible = version in api.flexible
        body = answered.data[_CORRELATION_ID_BYTES:]
        if flexible and api.key != API_VERSIONS:
            if body[:1] != b"\0":
                raise MalformedError("tagged fields in the header")
            body = body[1:]
        return decode(api.response, body, version, flexible=flexible)


class _Matched:
    """The answers of a transcript, each with its request."""

    def __init__(self, script: Script, transcript: Transcript) -> None:
        self.transcript = transcript
        self.answered: list[_Answered] = []
        self.problem: Problem | None = None
        steps = iter(script.steps_for(transcript.side.path))
        for data in transcript.answers:
            correlation_id = int.from_bytes(data[:_CORRELATION_ID_BYTES], "big", signed=True)
            step = _next(steps, correlation_id)
            if step is None:
                self.problem = Problem(
                    what=f"{transcript.side.path}: an answer to correlation id {correlation_id}, out of turn",
                    direct=data,
                )
                return
            self.answered.append(_Answered(step, data, transcript.side))
        if transcript.rest and script.ending != "reset":
            self.problem = Problem(
                what=f"{transcript.side.path}: a part of an answer, end: {transcript.end}",
                direct=transcript.rest,
            )


def _next(steps: Iterator[Step], correlation_id: int) -> Step | None:
    return next((s for s in steps if s.correlation_id == correlation_id and not s.is_silent), None)


def _took_long(script: Script, here: _Matched) -> bool:
    """Whether the broker took longer than the gateway waits for it.

    The gateway waits for the answers in front of a request that it refuses, but not without end
    (docs/architecture.md, The states of a connection, REFUSED).
    """
    ended = here.transcript.end == "closed" and here.transcript.seconds >= _REFUSED_S
    return ended and _may_be_refused(script)


def _may_be_refused(script: Script) -> bool:
    """Whether the gateway may refuse one of the requests."""
    return any(step.body is None or _is_refused(step) for step in script.steps)


def _logs_in(answered: _Answered) -> bool:
    """Whether an answer ends a login, so that the client is known."""
    if answered.step.api_key != SASL_AUTHENTICATE:
        return False
    error_at = _CORRELATION_ID_BYTES + (answered.step.version >= _FIRST_FLEXIBLE_LOGIN)
    return answered.data[error_at : error_at + 2] == bytes(2)


def _is_refused(step: Step) -> bool:
    """Whether a rewriting listener closes at a request (docs/listeners.md, Nothing leaks)."""
    return step.api_key == SASL_HANDSHAKE and step.version == 0


def _ends_reading(answered: _Answered) -> bool:
    """Whether a listener that keeps addresses reads nothing behind a request (Who logs in)."""
    return answered.step.api_key == SASL_HANDSHAKE and answered.step.version == 0


def _open(step: Step) -> Problem:
    return Problem(what="the gateway leaves a connection open that it documents to close", step=step)


def _ends_connection(answered: _Answered) -> bool:
    """Whether the gateway closes where Kafka does not: at software that is not valid (KIP-511)."""
    step = answered.step
    if step.api_key != API_VERSIONS or step.body is None or "ClientSoftwareName" not in step.body:
        return False
    words = (step.body["ClientSoftwareName"], step.body["ClientSoftwareVersion"])
    error = int.from_bytes(answered.data[4:6], "big", signed=True)
    valid = all(word and set(word) <= _SOFTWARE_CHARACTERS for word in words)
    return error == _INVALID_REQUEST and not valid


_SOFTWARE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")


def _end_problem(script: Script, direct: Transcript, other: Transcript) -> Problem | None:
    if script.ending == "reset" or direct.end == other.end:
        return None
    ends_soon = script.ending in ("half", "cut") or _may_be_refused(script)
    if direct.end == "silent" and other.end == "closed" and ends_soon:
        # The broker lets the client wait. The gateway soon ends what it refuses, and what one side
        # has ended (docs/architecture.md, The states of a connection).
        return None
    return Problem(what=f"the broker's end: {direct.end}, the gateway's: {other.end}")


def difference(wanted: Any, found: Any, path: str = "") -> str | None:
    """Return where two values differ first, and how; None: nowhere."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in [*wanted, *(name for name in found if name not in wanted)]:
            if name not in wanted or name not in found:
                return f"{path}.{name} is {'missing' if name in wanted else 'too much'}"
            inner = difference(wanted[name], found[name], f"{path}.{name}")
            if inner is not None:
                return inner
        return None
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return f"{path} has {len(found)} items, not {len(wanted)}"
        for number, (item, other) in enumerate(zip(wanted, found, strict=True)):
            inner = difference(item, other, f"{path}[{number}]")
            if inner is not None:
                return inner
        return None
    if type(wanted) is type(found) and wanted == found:
        return None
    return f"{path} is {found!r:.200}, not {wanted!r:.200}"
