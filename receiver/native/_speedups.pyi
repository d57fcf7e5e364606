from collections.abc import Iterable

class Walk:
    awaited: int | None
    frames: int
    last_key: int
    _every_key: bool
    _max_frame_bytes: int
    _seen: memoryview | None
    _skip: int
    _walks_requests: bool
    def passing(self, chunk: memoryview, /) -> int: ...
    def _watch(self, keys: Iterable[int], /) -> None: ...

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
    _meters: bool
    _room: int
    _sink_fd: int
    _source_fd: int
    _walk: Walk | None
    def readable(self) -> bool: ...
