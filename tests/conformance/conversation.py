"""A conversation with one peer: a case, its run, and the answers.

It decides what is sent when and on which connection. It compares nothing. The requests are in
:mod:`tests.conformance.words`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.conformance import answers, requests
from tests.conformance.answers import Reader, Reading, Seen
from tests.conformance.peer import Listener, Peer, Subscribed
from tests.conformance.talk import Fate, Talk

#: Kafka compares times in whole milliseconds: a get in the same one as the push before it does not
#: count.
_BETWEEN_STEPS_S: Final = 0.003

Framing = Literal["whole", "byte by byte", "one write"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a conversation: a step and its answer."""

    step: str
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One conversation, run with both peers.

    Attributes:
        name: Its unique name.
        steps: The steps, in order.
        listener: The listener to connect to.
        subscribed: The subscription that matches its client id.
        goes_on: Whether the last line is one more ApiVersions, which shows whether the connection
            is still open. False if the peer is left in the middle of a frame or expects something
            else.
    """

    name: str
    steps: tuple[Step, ...]
    listener: Listener = "CLIENT"
    subscribed: Subscribed = "slow"
    goes_on: bool = True

    def held_with(self, peer: Peer, attempt: int = 0) -> list[Line]:
        """Run the conversation with a peer; another attempt has new ids and longer pauses."""
        conversation = Conversation(peer, self, attempt)
        try:
            for step in self.steps:
                step.run(conversation)
                time.sleep(_BETWEEN_STEPS_S)
            if self.goes_on:
                conversation.note_whether_open()
        finally:
            conversation.end()
        return conversation.lines


class Conversation:
    """The state of a case with one peer.

    Attributes:
        client_id: Default client id of the requests; the subscription matches it.
        reading: The values learned from answers.
        lines: The lines so far.
        patience: Factor on pauses in which a peer may act.
    """

    def __init__(self, peer: Peer, case: Case, attempt: int = 0) -> None:
        name = f"{case.name} {attempt}" if attempt else case.name
        self.client_id = f"{case.subscribed}-{name.replace(' ', '-')}"
        self.patience = 10**attempt
        self.reading = Reading(seed=name, telemetry_versions=peer.telemetry_versions)
        self.lines: list[Line] = []
        self.peer = peer
        self._listener = case.listener
        self._correlation_id = 100
        self._talks = [self._connect()]
        self._changed = False

    @property
    def talk(self) -> Talk:
        return self._talks[-1]

    def note(self, step: str, seen: Seen) -> None:
        self.lines.append(Line(step=step, seen=seen))

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def connect_again(self) -> None:
        """Continue on another connection; the earlier ones stay open."""
        self._talks.append(self._connect())

    def disconnect(self) -> None:
        for talk in self._talks:
            talk.close()
        self._talks = []

    def change_subscription(self) -> None:
        self._changed = True
        self.peer.subscribe_further(self.client_id)

    def note_whether_open(self) -> None:
        correlation_id = self.next_correlation_id()
        self.talk.send(
            requests.frame(requests.header(requests.API_VERSIONS, 0, correlation_id, self.client_id))
        )
        seen = answers.read(self.talk.receive(), correlation_id, answers.api_versions(0), self.reading)
        self.note("then", Seen(text="open") if seen.text.startswith("NONE") else seen)

    def end(self) -> None:
        self.disconnect()
        if self._changed:
            self.peer.unsubscribe_further()

    def _connect(self) -> Talk:
        return Talk(self.peer.port(self._listener))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a conversation."""

    run: Callable[[Conversation], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Step):
    """A request; as a step it is sent and its answer read.

    Attributes:
        label: Text of the line.
        data: Makes the request's bytes without the length.
        reader: Makes the reader of the answer; None if Kafka sends no answer.
    """

    label: str
    data: Callable[[Conversation, int], bytes]
    reader: Callable[[Conversation], Reader] | None
    correlation_id: int | None = None
    run: Callable[[Conversation], None] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", lambda conversation: _exchange(conversation, (self,), "whole"))


def _exchange(
    conversation: Conversation, exchanged: Sequence[Request], framing: Framing, then: bytes = b""
) -> None:
    stream = b""
    expected: list[tuple[Request, int, Reader]] = []
    for request in exchanged:
        correlation_id = request.correlation_id
        if correlation_id is None:
            correlation_id = conversation.next_correlation_id()
        if request.reader is not None:
            expected.append((request, correlation_id, request.reader(conversation)))
        stream += requests.frame(request.data(conversation, correlation_id))
    stream += then
    if framing == "byte by byte":
        for index in range(len(stream)):
            conversation.talk.send(stream[index : index + 1])
            time.sleep(0.001)
    else:
        conversation.talk.send(stream)
    for request, correlation_id, reader in expected:
        answer = conversation.talk.receive()
        conversation.note(request.label, answers.read(answer, correlation_id, reader, conversation.reading))
        if isinstance(answer, Fate):
            return


def together(*exchanged: Request, then: bytes = b"") -> Step:
    """Send requests and the bytes of ``then`` in one write, then read the answers."""
    return Step(run=lambda conversation: _exchange(conversation, exchanged, "one write", then))


def byte_by_byte(*exchanged: Request) -> Step:
    """Send requests one byte at a time, and then read their answers."""
    return Step(run=lambda conversation: _exchange(conversation, exchanged, "byte by byte"))


def split_everywhere(make: Callable[[], Request]) -> Step:
    """Send a request in two writes, once for each place to cut it."""

    def run(conversation: Conversation) -> None:
        size = len(requests.frame(make().data(conversation, 0)))
        for cut in range(1, size):
            request = make()
            correlation_id = conversation.next_correlation_id()
            data = requests.frame(request.data(conversation, correlation_id))
            conversation.talk.send(data[:cut])
            time.sleep(0.0005)
            conversation.talk.send(data[cut:])
            if request.reader is not None:
                seen = answers.read(
                    conversation.talk.receive(),
                    correlation_id,
                    request.reader(conversation),
                    conversation.reading,
                )
                conversation.note(f"{request.label}, cut at {cut}", seen)

    return Step(run=run)
