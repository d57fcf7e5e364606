from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

class Walk:
    awaited: int | None
    frames: int
    last_key: int
    max_replaced_bytes: int
    _every_key: bool
    _kinds: bytes
    _max_frame_bytes: int
    _seen: memoryview | None
    _skip: int
    _table: PendingTable | None
    _walks_requests: bool
    def passing(self, chunk: memoryview, /) -> int: ...
    def _watch(self, keys: Iterable[int], /) -> None: ...

class TlsState:
    read: Callable[[int, memoryview], int]
    write: Callable[[memoryview], int]
    pending: Callable[[], int]
    feed: Callable[[memoryview], int]
    take: Callable[[], bytes]
    ciphertext: memoryview
    unsent: memoryview | bytes
    error: OSError | None
    encrypted: int
    drained: bool
    more: bool
    ended: bool
    rest: bool

class Pump:
    bytes_read: int
    ended: bool
    limit: object
    paused: bool
    shuts_down: bool
    supervised: bool
    _words: memoryview[int] | None
    _from_client: bool
    _backlog: bytes | memoryview
    _costly_bytes: int
    _meters: bool
    _reading: bool
    _room: int
    _sink_fd: int
    _sink_tls: TlsState | None
    _source_fd: int
    _source_tls: TlsState | None
    _walk: Walk | None
    def readable(self) -> bool: ...

class ShareTime:
    turn: int
    left_s: float
    waiting: OrderedDict[int, bool]

class TurnState:
    callbacks: dict[int, tuple[Callable[[], bool], Any]]
    deferred: int
    due: dict[int, int]
    interrupted: bool
    longest_turn_s: float
    _clock: Callable[[], float] | None
    _epoll_fd: int
    _polled: float
    _turn: int
    _waiting: dict[Any, None]
    def serve(self, timeout: float | None, /) -> None: ...

class PendingTable:
    costly: int
    counted: int
    held_bytes: int
    max_held_bytes: int
    undecided: int
    work: int
    _random_number: Callable[[], int]
    _units: memoryview[int]
    @property
    def count(self) -> int: ...
    def _append(self, pending: object, correlation_id: int, max_read_bytes: int, /) -> None: ...
    def _first(self) -> Any: ...
    def _pop(self) -> Any: ...
