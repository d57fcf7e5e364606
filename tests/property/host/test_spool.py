"""The spool against a list: whatever is done, in whatever order, and wherever it crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.host.spool import Position, Spool
from tests.exploration import examples
from tests.unit.host.spool.support import append_each, bytes_on_disk, numbers_of, read_all, segments, some

_EVERYTHING = 1 << 30
_SEGMENT_BYTES = 1500
_PUSH_BYTES = 60


class SpoolMachine(RuleBasedStateMachine):
    """``waiting``: appended and not committed. ``read``: how many of these were read."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="spool-"))
        self.folders = 0
        self.waiting: list[int] = []
        self.positions: list[Position] = []
        self.appended = 0
        # Pushes in a bad frame are held until what is around them is delivered.
        self.damaged = False

    @initialize()
    def begin(self) -> None:
        self.open_in(self.top / "0")

    def open_in(self, folder: Path) -> None:
        self.folder = folder
        self.spool = Spool(folder, max_bytes=1 << 22, segment_bytes=_SEGMENT_BYTES)
        self.recovery = self.spool.open()

    @rule(pushes=st.integers(1, 12), each=st.booleans())
    def append(self, pushes: int, each: bool) -> None:
        end = self.appended + pushes
        if each:
            append_each(self.spool, self.appended, end, size=_PUSH_BYTES)
        else:
            self.spool.append(some(self.appended, end, size=_PUSH_BYTES))
        self.waiting += range(self.appended, end)
        self.appended = end

    @rule(items=st.integers(1, 30), pushes_of_bytes=st.integers(1, 30))
    def read(self, items: int, pushes_of_bytes: int) -> None:
        spooled = self.spool.read(items, pushes_of_bytes * _PUSH_BYTES)
        at = len(self.positions)
        assert numbers_of(spooled) == self.waiting[at : at + min(items, pushes_of_bytes)]
        self.positions += [each.position for each in spooled]
        assert self.positions == sorted(set(self.positions))

    @rule()
    def rewind(self) -> None:
        self.spool.rewind()
        self.positions.clear()

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        pushes = data.draw(st.integers(1, len(self.positions)))
        self.spool.commit(self.positions[pushes - 1])
        del self.positions[:pushes]
        del self.waiting[:pushes]

    @rule()
    def reopen(self) -> None:
        self.spool.close()
        self.open_in(self.folder)
        self.positions.clear()
        assert self.damaged or not self.recovery.set_aside
        assert not self.recovery.torn_bytes

    @rule(damage=st.sampled_from(["none", "cut", "flip"]), data=st.data())
    def crash(self, damage: str, data: st.DataObject) -> None:
        """Go on with a copy of the folder, to which something happened."""
        self.rewind()
        held = self.spool.read(_EVERYTHING, _EVERYTHING)
        assert numbers_of(held) == self.waiting
        self.folders += 1
        copy = self.top / str(self.folders)
        shutil.copytree(self.folder, copy)
        self.spool.close()
        files = segments(copy)
        damaged = range(0)
        if files and damage != "none":
            file = files[-1 if damage == "cut" else data.draw(st.integers(0, len(files) - 1))]
            content = bytearray(file.read_bytes())
            at = data.draw(st.integers(0, len(content) - 1))
            if damage == "cut":
                del content[at:]
            else:
                content[at] ^= data.draw(st.integers(1, 255))
            file.write_bytes(content)
            self.damaged |= damage == "flip"
            following = files[files.index(file) + 1 :]
            damaged = range(int(file.stem), int(following[0].stem) if following else 1 << 63)
        self.open_in(copy)
        read = read_all(self.spool)
        assert read == sorted(set(read)), "in order, and none twice"
        kept = {
            number for number, each in zip(self.waiting, held, strict=True) if each.position not in damaged
        }
        assert kept <= set(read) <= set(range(self.appended))
        if not self.damaged:
            assert self.spool.statistics.lost_pushes == self.spool.statistics.set_aside_segments == 0
        self.waiting = read
        self.rewind()

    @rule()
    def crash_without_cursor(self) -> None:
        self.spool.close()
        (self.folder / "cursor").unlink(missing_ok=True)
        self.open_in(self.folder)
        read = read_all(self.spool)
        assert read[len(read) - len(self.waiting) :] == self.waiting
        self.waiting = read
        self.rewind()

    @invariant()
    def the_numbers_agree(self) -> None:
        if not hasattr(self, "spool"):
            return
        statistics = self.spool.statistics
        held = statistics.pushes - len(self.waiting)
        assert held >= 0
        assert self.damaged or not held
        assert (statistics.oldest_received_at_ns is None) == (not self.waiting)
        assert statistics.bytes == bytes_on_disk(self.folder)
        assert statistics.dropped_full == 0
        assert statistics.problem is None

    def teardown(self) -> None:
        if hasattr(self, "spool"):
            self.spool.close()
        shutil.rmtree(self.top)


SpoolMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestSpool = SpoolMachine.TestCase


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4000), st.booleans()), max_size=40),
    st.integers(4096, 40_000),
)
def test_the_bound_holds_and_what_went_is_the_oldest_and_counted(
    appends: list[tuple[int, int, bool]], max_bytes: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="spool-") as name:
        folder = Path(name)
        spool = Spool(folder, max_bytes=max_bytes, segment_bytes=1 << 20)
        spool.open()
        appended = 0
        for count, size, read in appends:
            spool.append(some(appended, appended + count, size=size))
            appended += count
            statistics = spool.statistics
            assert bytes_on_disk(folder) == statistics.bytes <= max_bytes
            assert statistics.pushes + statistics.dropped_full == appended
            if read:
                spool.read(2, _EVERYTHING)
        spool.rewind()
        left = read_all(spool)
        assert len(left) == spool.statistics.pushes
        assert spool.statistics.lost_pushes == spool.statistics.set_aside_segments == 0
        assert left == sorted(set(left))
        spool.close()
        assert spool.open().pushes == len(left)
        spool.close()
