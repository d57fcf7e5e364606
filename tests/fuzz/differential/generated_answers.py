"""Answers that a real broker can't be made to give, through a session in this process.

A real broker of one node names one broker, answers few errors and no unknown tagged fields, and has
no leader that moves. Here each answer is generated from Kafka's message definitions. What comes out
of the session is compared like a real broker's answers. The broker must get each request as it was
but for its correlation id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from random import Random
from typing import Final

from receiver.wire.broker_addresses import BrokerAddress
from receiver.wire.errors import WireError
from tests.fuzz.differential.codec import Tree, encode
from tests.fuzz.differential.comparison import Comparison, Problem
from tests.fuzz.differential.conversation import Transcript
from tests.fuzz.differential.documented import CONTROLLER_KEYS, Gateway
from tests.fuzz.differential.generator import generate_response
from tests.fuzz.differential.schemas import Api
from tests.fuzz.differential.script import API_VERSIONS, TELEMETRY, Script, Step, Writer
from tests.fuzz.differential.sides import OWN_TOPIC_ID, SHARED_TOPIC_ID, Path, Side, side_name
from tests.unit.session.support import Wire

_GATEWAY: Final = Gateway(host="gateway.test", first_port=9000, nodes=2, port=9092)
_ID_AT: Final = 8
_ID_END: Final = 12
_PATHS: Final[tuple[Path, ...]] = ("kept", "rewritten")


class GeneratedAnswers:
    """Plays rounds whose answers are generated.

    Args:
        apis: Kafka's definitions.
        seed: Where everything random comes from.
    """

    def __init__(self, apis: Mapping[int, Api], seed: str) -> None:
        self._apis = apis
        self._seed = seed
        self._offered = {
            key: (api.versions[0], api.versions[-1])
            for key, api in apis.items()
            if key not in CONTROLLER_KEYS
        }
        self._writer = Writer(apis, self._offered, seed)
        self._comparison = Comparison(apis, {"CLIENT": _GATEWAY})

    def problems(self, number: int) -> list[tuple[Script, Path, Problem]]:
        """Play a round on listeners of both kinds, and return what differs."""
        script = self._writer.valid_script(number)
        random = Random(f"{self._seed} {number} answers")
        answers = [self._answer(step, random) for step in script.steps]
        direct = Transcript(side=_side("direct"), end="closed")
        direct.answers = [answer for answer in answers if answer is not None]
        found = []
        for path in _PATHS:
            problem = self._problem(script, answers, direct, path, random)
            if problem is not None:
                found.append((script, path, problem))
        return found

    def _problem(
        self, script: Script, answers: list[bytes | None], direct: Transcript, path: Path, random: Random
    ) -> Problem | None:
        session = _Session(self._offered, script, answers, path, random)
        try:
            received = session.play()
        except WireError as error:
            return Problem(what=f"the session refuses: {error}")
        if session.changed is not None:
            return Problem(what="the broker gets another request", step=session.changed)
        return self._comparison.problem(
            script, direct, Transcript(side=_side(path), answers=received, end="closed")
        )

    def _answer(self, step: Step, random: Random) -> bytes | None:
        """Return an answer without its length; None for a request that has none."""
        if step.is_silent:
            return None
        api = self._apis[step.api_key or 0]
        flexible = step.version in api.flexible
        tree = generate_response(api, step.version, random)
        if api.key == API_VERSIONS:
            tree |= self._versions()
        head = struct.pack(">i", step.correlation_id)
        if flexible and api.key != API_VERSIONS:
            head += b"\0"
        return head + encode(api.response, tree, step.version, flexible=flexible)

    def _versions(self) -> Tree:
        keys = [
            {"ApiKey": key, "MinVersion": low, "MaxVersion": high}
            for key, (low, high) in self._offered.items()
            if key not in TELEMETRY
        ]
        return {"ErrorCode": 0, "ApiKeys": keys}


class _Session:
    """A session whose two sides send in pieces, in any order."""

    def __init__(
        self,
        offered: Mapping[int, tuple[int, int]],
        script: Script,
        answers: list[bytes | None],
        path: Path,
        random: Random,
    ) -> None:
        self._wire = Wire(learned=offered, replace_address=_replace_address if path == "rewritten" else None)
        self._script = script
        self._answers = answers
        self._random = random
        self._taken = 0
        self._unread = b"".join(step.template for step in script.steps)
        self._unsent = b""
        #: The first request that the broker did not get as it was.
        self.changed: Step | None = None

    def play(self) -> list[bytes]:
        """Return the answers that the client gets, without their lengths."""
        while self._unread or self._unsent:
            if self._unread and (not self._unsent or self._random.random() < 0.5):
                piece, self._unread = self._cut(self._unread)
                self._wire.send(piece)
                self._take_requests()
            else:
                piece, self._unsent = self._cut(self._unsent)
                self._wire.receive(piece)
        return self._wire.received()

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        size = self._random.choice((1, 3, 10, 100, 20_000, len(data)))
        return data[:size], data[size:]

    def _take_requests(self) -> None:
        """Answer the whole requests that the broker has got."""
        got = self._wire.to_broker
        while len(got) >= _ID_END:
            end = 4 + int.from_bytes(got[:4], "big")
            if len(got) < end:
                return
            request = bytes(got[:end])
            del got[:end]
            step, answer = self._script.steps[self._taken], self._answers[self._taken]
            self._taken += 1
            unchanged = (request[:_ID_AT], request[_ID_END:])
            if unchanged != (step.template[:_ID_AT], step.template[_ID_END:]) and self.changed is None:
                self.changed = step
            if answer is not None:
                data = request[_ID_AT:_ID_END] + answer[4:]
                self._unsent += struct.pack(">i", len(data)) + data


def _replace_address(broker: BrokerAddress) -> tuple[str, int]:
    return _GATEWAY.address(broker.node_id)


def _side(path: Path) -> Side:
    ids = {OWN_TOPIC_ID: b"o" * 16, SHARED_TOPIC_ID: b"s" * 16}
    return Side(path=path, name=side_name(0), ports={}, topic_ids=ids)
