"""Writes the script of one round: what a client sends on one connection, and how.

The same seed and number make the same script. It stays within what a client may do by the protocol
notes: pipelines are short of the 33 requests at which the gateway closes, and headers have few
tagged fields. The conformance suite has those bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.fuzz.differential.codec import Tree, encode, tagged_fields
from tests.fuzz.differential.generator import generate
from tests.fuzz.differential.schemas import Api
from tests.fuzz.differential.sides import SIDE, Listener, Path
from tests.fuzz.differential.values import ROUNDS
from tests.testbed.broker import SASL_USERS

PRODUCE: Final = 0
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
CREATE_DELEGATION_TOKEN: Final = 38
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
TELEMETRY: Final = frozenset({GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY})

#: How the client ends. ``close``: after its last answer. ``half``: it shuts its direction down
#: after its last byte, and reads to the end. ``cut``: the same, anywhere in the bytes. ``reset``:
#: it sends a reset anywhere, after some answers.
Ending = Literal["close", "half", "cut", "reset"]

_ENDINGS: Final[Sequence[Ending]] = ("close",) * 5 + ("half",) * 2 + ("cut",) * 2 + ("reset",)
_FEW_REQUESTS: Final = (1, 1, 2, 2, 3, 3, 4, 5, 6)
_MANY_REQUESTS: Final = 24
_FAVOURITES: Final = (0, 1, 3, 10, 18, 60, 78, 32)
_ODD_VERSIONS: Final = (6, 7, 32_767, -1, 100, -32_768)
_ODD_KEYS: Final = (4, 5, 6, 7, 52, 53, 56, 58, 59, 62, 95, 200, 32_767, -1, -32_768)
_ODD_LENGTHS: Final = (0, 1, 4, 7, -1, -(1 << 31), (1 << 31) - 1, 0x47455420, 0x16030100)
_CORRELATION_IDS: Final = (0, 1, -1, -2, (1 << 31) - 1, -(1 << 31))
_LAST_CORRELATION_ID: Final = 0x5EED_5EED
_BAD_SOFTWARE: Final = ("", " ", "with space", "under_score", "ümlaut")
_METADATA: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request.

    Attributes:
        template: Its frame, with marks (:mod:`~tests.fuzz.differential.sides`).
        api_key: Its API key; None if the frame is broken.
        version: Its version.
        correlation_id: Its correlation id.
        body: Its body; None if the gateway and Kafka are not meant to understand it.
        what: What it is, for the report.
    """

    template: bytes
    api_key: int | None
    version: int
    correlation_id: int
    body: Tree | None
    what: str

    @property
    def is_silent(self) -> bool:
        """Whether it has no answer, as Produce with acks=0 has none."""
        return self.api_key == PRODUCE and self.body is not None and self.body["Acks"] == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One connection.

    Attributes:
        seed: The run's seed.
        number: The round's number.
        listener: The listener that the client connects to.
        steps: Its requests. The last one of an ending without a cut is answered on any connection
            that is still open.
        ending: How it ends.
        cut: The step in which it ends, and the bytes of it that are sent; with ``cut`` and
            ``reset``.
        lockstep: Whether each request waits for the answer to the one before.
        pieces: Into how many pieces the bytes are split, about.
    """

    seed: str
    number: int
    listener: Listener
    steps: tuple[Step, ...]
    ending: Ending
    cut: tuple[int, int] | None
    lockstep: bool
    pieces: int

    def steps_for(self, path: Path) -> list[Step]:
        """Return the steps of a path: the broker itself is asked for no telemetry."""
        steps = self.steps if self.cut is None else self.steps[: self.cut[0] + 1]
        return [step for step in steps if path != "direct" or step.api_key not in TELEMETRY]

    def templates(self, path: Path) -> list[bytes]:
        """Return the templates of what a path gets, step by step; the last may be cut."""
        steps = self.steps_for(path)
        templates = [step.template for step in steps]
        if self.cut is not None and templates and steps[-1] is self.steps[self.cut[0]]:
            templates[-1] = templates[-1][: self.cut[1]]
        return templates


class Writer:
    """Writes scripts.

    Args:
        apis: Kafka's definitions.
        offered: The lowest and highest version that the broker offers, by API key.
        seed: Where everything random comes from.
    """

    def __init__(self, apis: Mapping[int, Api], offered: Mapping[int, tuple[int, int]], seed: str) -> None:
        self._apis = apis
        self._seed = seed
        self._offered = {
            key: range(max(low, apis[key].versions[0]), min(high, apis[key].versions[-1]) + 1)
            for key, (low, high) in offered.items()
            if key in apis
        }

    def script(self, number: int) -> Script:
        """Return the script of a round."""
        return _Round(self._apis, self._offered, self._seed, number).script()

    def valid_script(self, number: int) -> Script:
        """Return a script of valid requests without a login and telemetry, which is not cut."""
        return _Round(self._apis, self._offered, self._seed, number).valid_script()


class _Round:
    def __init__(self, apis: Mapping[int, Api], offered: Mapping[int, range], seed: str, number: int) -> None:
        self._random = Random(f"{seed} {number}")  # no secret
        self._apis = apis
        self._offered = offered
        self._seed = seed
        self._number = number
        self._name = f"{ROUNDS}{number}-{SIDE}"
        self._ending = self._random.choice(_ENDINGS)
        self._listener: Listener = "SASL" if self._random.random() < 0.2 else "CLIENT"
        self._first = True

    def script(self) -> Script:
        random = self._random
        steps = self._login() if self._listener == "SASL" else []
        many = random.random() < 0.03
        count = random.randint(10, _MANY_REQUESTS) if many else random.choice(_FEW_REQUESTS)
        steps += [self._step() for _ in range(count)]
        cut = None
        if self._ending in ("close", "half"):
            steps.append(self._last())
        else:
            place = random.randrange(len(steps))
            cut = (place, random.randint(0, len(steps[place].template)))
        return Script(
            seed=self._seed,
            number=self._number,
            listener=self._listener,
            steps=tuple(steps),
            ending=self._ending,
            cut=cut,
            lockstep=random.random() < 0.2,
            pieces=random.choice((1, 1, 1, 2, 3, 5, 20)),
        )

    def valid_script(self) -> Script:
        keys = [key for key in self._offered if key not in TELEMETRY | {SASL_HANDSHAKE, SASL_AUTHENTICATE}]
        steps = []
        for _ in range(self._random.choice(_FEW_REQUESTS)):
            key = self._random.choice((self._random.choice(keys), self._random.choice(_FAVOURITES)))
            version = self._random.choice(self._offered[key])
            body = self._body(key, version)
            if key == API_VERSIONS:
                # The session answers by itself where these are wrong.
                body |= {"ClusterId": None, "NodeId": -1}
            steps.append(self._request(key, version, body))
        return Script(
            seed=self._seed,
            number=self._number,
            listener="CLIENT",
            steps=tuple(steps),
            ending="half",
            cut=None,
            lockstep=False,
            pieces=1,
        )

    def _login(self) -> list[Step]:
        random, steps = self._random, []
        if random.random() < 0.6:
            version = random.choice((0, 3, 4, 5))
            steps.append(self._request(API_VERSIONS, version, self._body(API_VERSIONS, version)))
        chance = random.random()
        if chance < 0.05:
            return steps
        mechanism = random.choice(("ABSENT", "")) if chance < 0.1 else "PLAIN"
        steps.append(self._request(SASL_HANDSHAKE, 1, {"Mechanism": mechanism}))
        password = "wrong" if chance > 0.92 else SASL_USERS["alice"]
        token = {"AuthBytes": f"\0alice\0{password}".encode()}
        steps.append(self._request(SASL_AUTHENTICATE, random.choice((0, 1, 2)), token))
        return steps

    def _step(self) -> Step:
        chance = self._random.random()
        if chance < 0.05:
            return self._odd()
        if chance < 0.07:
            return self._broken()
        if chance < 0.12:
            return self._telemetry()
        if chance < 0.13:
            return self._bad_software()
        key = self._key()
        version = self._random.choice(self._offered[key])
        return self._request(key, version, self._body(key, version))

    def _key(self) -> int:
        random = self._random
        if random.random() < 0.3:
            return random.choice(_FAVOURITES)
        keys = [
            key
            for key in self._offered
            if key not in TELEMETRY
            # Tokens are random, and each is in the next answer of DescribeDelegationToken.
            and not (key == CREATE_DELEGATION_TOKEN and self._listener == "SASL")
        ]
        return random.choice(keys)

    def _body(self, key: int, version: int) -> Tree:
        return generate(self._apis[key], version, self._random, self._name)

    def _last(self) -> Step:
        body: Tree = {"Topics": [], "AllowAutoTopicCreation": False}
        return self._request(_METADATA, 4, body, correlation_id=_LAST_CORRELATION_ID, plain=True)

    def _telemetry(self) -> Step:
        random = self._random
        key = random.choice((GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY))
        return self._request(key, 0, self._body(key, 0))

    def _bad_software(self) -> Step:
        version = self._random.choice((3, 4, 5))
        body = self._body(API_VERSIONS, version)
        name = self._random.choice(("ClientSoftwareName", "ClientSoftwareVersion"))
        body[name] = self._random.choice(_BAD_SOFTWARE)
        return self._request(API_VERSIONS, version, body)

    def _odd(self) -> Step:
        """Return a request that Kafka does not know."""
        random = self._random
        kind = random.randrange(3)
        if kind == 0:
            key, version = API_VERSIONS, random.choice(_ODD_VERSIONS)
        elif kind == 1:
            key = random.choice([key for key in self._offered if key not in TELEMETRY | {API_VERSIONS}])
            version = random.choice((self._offered[key][0] - 1, self._offered[key][-1] + 1, 32_767, -1))
        else:
            key, version = random.choice(_ODD_KEYS), random.choice((0, 1, -1))
        correlation_id = self._correlation_id()
        head = struct.pack(">hhi", key, version, correlation_id) + self._client_id(plain=False)
        data = head + b"\0" + random.randbytes(random.choice((0, 5, 300)))
        return Step(
            template=struct.pack(">i", len(data)) + data,
            api_key=key,
            version=version,
            correlation_id=correlation_id,
            body=None,
            what=f"unknown request {key} v{version}",
        )

    def _broken(self) -> Step:
        """Return a frame that is cut or has a wrong length."""
        random = self._random
        key = self._key()
        version = random.choice(self._offered[key])
        step = self._request(key, version, self._body(key, version))
        data = step.template[4:]
        kind = random.randrange(3)
        if kind == 0 and self._ending != "close":
            length, what = random.choice(_ODD_LENGTHS), "a frame with a wrong length"
        elif kind == 1:
            data += random.randbytes(random.choice((1, 3, 100)))
            length, what = len(data), "bytes behind the body"
        else:
            data = data[: random.randint(8, len(data))]
            length, what = len(data), "a truncated request"
        return Step(
            template=struct.pack(">i", length) + data,
            api_key=key,
            version=version,
            correlation_id=step.correlation_id,
            body=None,
            what=f"{what}: {step.what}",
        )

    def _request(
        self, key: int, version: int, body: Tree, *, correlation_id: int | None = None, plain: bool = False
    ) -> Step:
        api, random = self._apis[key], self._random
        flexible = version in api.flexible
        if correlation_id is None:
            correlation_id = self._correlation_id()
        data = struct.pack(">hhi", key, version, correlation_id) + self._client_id(plain=plain)
        if flexible:
            tags = 0 if plain or random.random() < 0.95 else random.randint(1, 5)
            data += tagged_fields([(100 + tag, random.randbytes(tag * 7)) for tag in range(tags)])
        data += encode(api.request, body, version, flexible=flexible)
        return Step(
            template=struct.pack(">i", len(data)) + data,
            api_key=key,
            version=version,
            correlation_id=correlation_id,
            body=body,
            what=f"{api.name} ({key}) v{version}",
        )

    def _correlation_id(self) -> int:
        random = self._random
        if random.random() < 0.3:
            return random.choice(_CORRELATION_IDS)
        return random.randint(-(1 << 31), (1 << 31) - 1)

    def _client_id(self, *, plain: bool) -> bytes:
        random = self._random
        if plain or random.random() < 0.6:
            client_id: bytes | None = b"fuzz"
        else:
            client_id = random.choice((None, b"", b"x" * 300, "ümlaut".encode(), b"\xff\xfe", b"y" * 32_767))
        if client_id is None:
            return struct.pack(">h", -1)
        return struct.pack(">h", len(client_id)) + client_id
