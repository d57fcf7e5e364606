"""The folder of subscriptions: mistakes with their places, changes, and the last good set."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from receiver.store.files import (
    MAX_FILES,
    FileSubscriptionStore,
    read_folder,
)
from receiver.store.folder import FolderError
from receiver.store.store import ReadOnlyError
from receiver.telemetry.subscription import Subscription
from spark_streaming.files import MAX_CONFIGURATION_BYTES
from tests.testbed.files import replace

#: A test never waits this long.
_WITHIN_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.d"
    path.mkdir()
    return path


def mistakes(folder: Path) -> tuple[str, ...]:
    with pytest.raises(FolderError) as refused:
        read_folder(folder)
    return refused.value.mistakes


def names(folder: Path) -> list[str]:
    return [subscription.name for subscription in read_folder(folder).subscriptions.subscriptions]


def test_a_file_has_one_subscription_or_a_list(folder: Path) -> None:
    (folder / "producers.yaml").write_text("metrics: [org.apache.kafka.producer.]\ninterval_ms: 60000\n")
    (folder / "more.yml").write_text("- {name: b, metrics: ['*']}\n- {name: a, metrics: []}\n")
    (folder / "c.json").write_text('{"name": "d", "metrics": [], "match": {"client_id": "x"}}')
    (folder / "empty.yaml").write_text("# nothing yet\n")
    read = read_folder(folder)
    assert read.subscriptions.subscriptions == (
        Subscription(name="a", metrics=()),
        Subscription(name="b", metrics=("*",)),
        Subscription(name="d", metrics=(), match={"client_id": "x"}),
        Subscription(name="producers", metrics=("org.apache.kafka.producer.",), interval_ms=60_000),
    )
    assert read.files == {"a": "more.yml", "b": "more.yml", "d": "c.json", "producers": "producers.yaml"}


def test_other_files_and_folders_are_left_out(folder: Path) -> None:
    (folder / "README.md").write_text("metrics: 5")
    (folder / ".hidden.yaml").write_text("metrics: 5")
    (folder / "sub.yaml").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    assert names(folder) == []


def test_every_mistake_of_every_file_is_reported_with_its_place(folder: Path) -> None:
    (folder / "a.yaml").write_text("metrics:\n  - a.\n  - 'b c'\ninterval_ms: 5\n")
    (folder / "b.yaml").write_text("- {name: x, metrics: []}\n- name: y\n  metric: []\n")
    (folder / "c.yaml").write_text("metrics: [\n")
    (folder / "d.yaml").write_text("name: x\nmetrics: []\n")
    (folder / "e.yaml").write_text("{metrics: [], metrics: []}")
    (folder / "f.yaml").write_text("5")
    (folder / "g.yaml").symlink_to("absent")
    (folder / "h.yaml").write_bytes(b"#" * (MAX_CONFIGURATION_BYTES + 1))
    (folder / "i.yaml").write_text("- {metrics: []}\n")
    (folder / "j.yaml").write_bytes(b"metrics: [\xff\xfe]")
    assert mistakes(folder) == (
        "a.yaml:3:5: metrics[1]: 'b c' is no prefix of a metric name; use at most 255 of the letters A to Z, "
        "digits and _ . - /, or * alone for all metrics",
        "a.yaml:4:1: interval_ms: 5 is out of range; give 100 to 3600000 milliseconds",
        "b.yaml:3:3: [1].metric: [] is an unknown field; did you mean metrics?",
        'b.yaml:2:3: [1]: metrics: null is required; give a list of prefixes, or ["*"]',
        "c.yaml:2:1: expected the node content, but found '<stream end>'",
        "d.yaml:1:1: name: 'x' is the name of a subscription at b.yaml:1:4 too; give another name",
        "e.yaml:1:15: metrics: the key is given twice",
        "f.yaml:1:1: 5 is not a mapping; give the subscription's fields",
        "g.yaml: cannot be read: No such file or directory",
        f"h.yaml: is larger than {MAX_CONFIGURATION_BYTES} bytes: check that it is the right file",
        "i.yaml:1:3: [0]: name: null is not a name; give a text of one character or more",
        "j.yaml: not YAML text",
    )


def test_the_bounds_of_all_files_together_hold(folder: Path) -> None:
    for number in range(5):
        entries = (f"- {{name: s{number}-{item}, metrics: []}}\n" for item in range(250))
        (folder / f"{number}.yaml").write_text("".join(entries))
    (only,) = mistakes(folder)
    assert only == "name: '1250 subscriptions' are too many; keep at most 1000"


def test_too_many_files_are_refused_unread(folder: Path) -> None:
    for number in range(MAX_FILES + 1):
        (folder / f"{number}.yaml").touch()
    with pytest.raises(FolderError, match=f"has more than {MAX_FILES} files; put several") as refused:
        read_folder(folder)
    assert refused.value.mistakes == ()


def test_a_folder_that_cannot_be_read_is_an_error(folder: Path) -> None:
    with pytest.raises(FolderError, match="the folder can't be read: No such file or directory; set sub"):
        read_folder(folder / "absent")
    (folder / "a.yaml").touch()
    with pytest.raises(FolderError, match="the folder can't be read: Not a directory"):
        FileSubscriptionStore(folder / "a.yaml", strict=True)


class Followed:
    """A store whose changes can be waited for."""

    def __init__(self, folder: Path) -> None:
        self.store = FileSubscriptionStore(folder, every_s=0.1)
        self._changed = threading.Event()
        self.store.follow(self._changed.set)

    def names(self) -> list[str]:
        return [item.name for item in self.store.load_all()]

    def after(self, change: Callable[[], object]) -> list[str]:
        """Wait until the store reports a change, and return the subscriptions' names."""
        self._changed.clear()
        change()
        assert self._changed.wait(_WITHIN_S)
        return self.names()

    def until(self, holds: Callable[[], bool]) -> None:
        poll = threading.Event()
        for _ in range(int(_WITHIN_S * 10)):
            if holds():
                return
            poll.wait(0.1)
        raise AssertionError("it never came true")


@pytest.fixture
def followed(folder: Path) -> Iterator[Followed]:
    (folder / "a.yaml").write_text("metrics: [a.]\n")
    followed = Followed(folder)
    yield followed
    followed.store.close()


def test_changes_are_followed(folder: Path, followed: Followed) -> None:
    assert followed.names() == ["a"]
    assert followed.after(lambda: replace(folder / "b.yaml", "metrics: []\n")) == ["a", "b"]
    assert followed.after((folder / "a.yaml").unlink) == ["b"]
    assert followed.after(lambda: replace(folder / "b.yaml", "{name: c, metrics: []}")) == ["c"]


def test_a_bad_change_keeps_the_last_good_set(folder: Path, followed: Followed) -> None:
    assert followed.store.status().problem is None
    replace(folder / "a.yaml", "metrics: [a., b.]\n")
    replace(folder / "b.yaml", "metrics: ['x y']\ninterval_ms: 1\n")
    followed.until(lambda: followed.store.status().problem is not None)
    status = followed.store.status()
    assert status.problem == f"{folder}: 2 mistakes in its files; the log has them"
    assert status.failures == 1
    assert followed.store.load_all() == (Subscription(name="a", metrics=("a.",)),)
    assert followed.after((folder / "b.yaml").unlink) == ["a"]
    assert followed.store.load_all() == (Subscription(name="a", metrics=("a.", "b.")),)
    assert followed.store.status().problem is None
    assert followed.store.status().failures == 1


def test_a_folder_that_disappears_keeps_the_last_good_set(folder: Path, followed: Followed) -> None:
    folder.rename(folder.with_name("elsewhere"))
    followed.until(lambda: followed.store.status().problem is not None)
    assert "the folder can't be read: No such file or directory" in str(followed.store.status().problem)
    assert followed.names() == ["a"]
    replace(folder.with_name("elsewhere") / "b.yaml", "metrics: []\n")
    assert followed.after(lambda: folder.with_name("elsewhere").rename(folder)) == ["a", "b"]


def test_a_config_map_is_followed(folder: Path) -> None:
    def swap(number: int, **files: str) -> None:
        """Write files as the kubelet does: a new folder, then one rename of the link to it."""
        fresh = folder / f"..{number}"
        fresh.mkdir()
        for name, text in files.items():
            (fresh / f"{name}.yaml").write_text(text)
        (folder / "..data_tmp").symlink_to(fresh.name)
        (folder / "..data_tmp").rename(folder / "..data")
        for name in files:
            if not (folder / f"{name}.yaml").is_symlink():
                (folder / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")

    swap(1, a="metrics: [a.]")
    followed = Followed(folder)
    try:
        assert followed.names() == ["a"]
        assert followed.after(lambda: swap(2, a="{name: other, metrics: []}", b="metrics: []")) == [
            "b",
            "other",
        ]
    finally:
        followed.store.close()


def test_a_bad_folder_at_the_start_has_no_subscriptions_until_it_is_good(folder: Path) -> None:
    replace(folder / "a.yaml", "metric: []\n")
    with pytest.raises(FolderError, match=r"a.yaml:1:1: metric: \[\] is an unknown field.*\(and 1 more\)"):
        FileSubscriptionStore(folder, strict=True)
    followed = Followed(folder)
    try:
        assert followed.names() == []
        assert followed.store.status().problem == f"{folder}: 2 mistakes in its files; the log has them"
        assert followed.after(lambda: replace(folder / "a.yaml", "metrics: []\n")) == ["a"]
    finally:
        followed.store.close()


def test_the_error_of_a_change_names_the_file(folder: Path) -> None:
    (folder / "several.yaml").write_text("- {name: a, metrics: []}\n")
    store = FileSubscriptionStore(folder)
    with pytest.raises(ReadOnlyError) as refused:
        store.delete("a")
    assert str(refused.value) == (
        f"{folder}/several.yaml: the subscription 'a' comes from files and can't be changed elsewhere: "
        "change this file, and the receiver follows"
    )
    with pytest.raises(ReadOnlyError) as refused:
        store.put(Subscription(name="b", metrics=()))
    assert str(refused.value) == (
        f"{folder}: the subscription 'b' comes from files and can't be changed elsewhere: "
        "add a file with it to this folder"
    )
    store.close()
