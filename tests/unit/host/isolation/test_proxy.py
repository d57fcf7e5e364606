from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from receiver import workers
from receiver.host.delivery.statistics import DropReason
from receiver.host.discovery import PluginConfigError, load_plugins
from receiver.host.host import PluginHost
from receiver.host.isolation.proxy import PluginCrashError, PluginProxy
from receiver.plugin import (
    BatchRefusedError,
    ExportResult,
    PermanentError,
    Push,
    RetryableError,
    UnclearError,
)
from spark_streaming import dumps
from tests.unit.host.support import FAST, push, total, wait_for
from tests.unit.plugins.destinations import grpc_destination, http_destination
from tests.unit.plugins.support import client_push

HERE = Path(__file__).parent
TREE = HERE.parents[3]
MEMORY = 134_217_728

Load = Callable[..., PluginProxy]


def asking(what: str, number: int = 0, *, size: int = 10) -> Push:
    one = push(number, size=size)
    return dataclasses.replace(one, context=dataclasses.replace(one.context, client_id=what))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin's distribution, installed as pip would leave it."""
    info = tmp_path / "misbehaving-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kafka_client_telemetry.plugins]\n"
        "misbehaving = misbehaving:Misbehaving\n"
        "single = misbehaving:Single\n"
    )
    (tmp_path / "misbehaving.py").write_text((HERE / "misbehaving.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "misbehaving", raising=False)
    return tmp_path


@pytest.fixture
def load(installed: Path) -> Iterator[Load]:
    """Load the plugin for a process of its own; what is started ends with the test."""
    loaded: list[PluginProxy] = []

    def one(type_: str = "misbehaving", *, process: dict[str, Any] | None = None, **own: Any) -> PluginProxy:
        config = {"type": type_, "isolation": "process", "process": process or {}, **own}
        (hosted,) = load_plugins([{"journal": str(installed / "journal"), **config}])
        assert isinstance(hosted.plugin, PluginProxy)
        loaded.append(hosted.plugin)
        return hosted.plugin

    yield one
    for plugin in loaded:
        if plugin._process is not None:
            plugin._process.end(timeout_s=0)


def pid(plugin: PluginProxy) -> int:
    assert plugin._process is not None
    return plugin._process._popen.pid


def journal(folder: Path) -> list[str]:
    return (folder / "journal").read_text().splitlines()


def gone(process: int) -> bool:
    """Whether a process has ended, also where nobody has waited for it yet."""
    try:
        return " Z " in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True


def test_a_thread_of_the_plugin_that_ends_is_reported(
    load: Load, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(workers, "_names", set())
    monkeypatch.setattr(workers, "_shown", {})
    plugin = load()
    with capture_logs() as logs:
        assert plugin.export_batch([asking("a thread that ends")]) == ExportResult()
        assert plugin.export_batch([push(1)]) == ExportResult()
    assert [(line["worker"], line["error"]) for line in logs] == [("own-N", "IndexError")]
    assert len(workers.problems()) == 1
    assert "Traceback" not in "".join(capfd.readouterr())


# -- what the plugin says comes back ---------------------------------------------------------------


def test_a_life(load: Load, installed: Path) -> None:
    plugin = load()
    assert plugin.max_batch_items == 50
    assert plugin.config.model_dump()["journal"] == installed / "journal"
    assert not (installed / "journal").exists()
    plugin.start()
    process = pid(plugin)
    assert plugin.export_batch([push(0), push(1), push(2)]) == ExportResult()
    assert plugin.export(push(3).context, push(3).payload) == ExportResult()
    plugin.stop()
    plugin.stop()
    assert gone(process)
    assert journal(installed) == ["started", "took 3", "took 1", "stopped"]
    assert plugin.restarts == 0


def test_a_push_arrives_whole(load: Load) -> None:
    plugin = load("single")
    assert plugin.max_batch_items == 1
    plugin.start()
    one = asking("echo", 7, size=70_000)
    assert plugin.export_batch([one]) == ExportResult(rejected_points=70_000, message=repr(one)[:200])


@pytest.mark.full
def test_a_batch_of_many_megabytes_arrives(load: Load, installed: Path) -> None:
    plugin = load()
    plugin.start()
    big = [asking("echo", number, size=1_000_000) for number in range(50)]
    result = plugin.export_batch(big)
    assert result is not None
    assert result.rejected_points == 1_000_000
    assert journal(installed)[-1] == "took 50"


@pytest.mark.parametrize(
    ("what", "kind", "message", "facts"),
    [
        ("retryable", RetryableError, r"away, \*{10}", {"retry_after_s": 7.5}),
        ("permanent", PermanentError, "never", {"rejected_points": 3}),
        pytest.param("unclear", UnclearError, "what now", {}, marks=pytest.mark.full),
        ("refused", BatchRefusedError, "too much", {"rejected_points": 2}),
        ("crash", PluginCrashError, r"LookupError at misbehaving\.py:\d+: no \*{10}", {}),
        pytest.param(
            "system exit",
            PluginCrashError,
            r"SystemExit at misbehaving\.py:\d+: 4",
            {},
            marks=pytest.mark.full,
        ),
        ("wrong type", PluginCrashError, "ValueError at child.py.*'soon'", {}),
    ],
)
def test_what_it_raises_is_raised_here(
    load: Load, what: str, kind: type[Exception], message: str, facts: dict[str, Any]
) -> None:
    plugin = load(token="hunter2")
    plugin.start()
    process = pid(plugin)
    with pytest.raises(kind) as caught:
        plugin.export_batch([asking(what)])
    assert type(caught.value) is kind
    assert re.fullmatch(message, str(caught.value))
    assert {name: getattr(caught.value, name) for name in facts} == facts
    assert plugin.export_batch([push()]) == ExportResult()
    assert (pid(plugin), plugin.restarts) == (process, 0), "the process goes on"


# -- crashes, hangs, hunger ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "message"),
    [
        pytest.param("exit", "the plugin's process ended with status 3", marks=pytest.mark.full),
        ("segmentation fault", r"the plugin's process was ended by signal 11 \(Segmentation fault\)"),
        pytest.param(
            "kill", r"the plugin's process was ended by signal 9 \(Killed\)", marks=pytest.mark.full
        ),
        ("garbage", "the plugin's process sent a malformed answer and was killed"),
        pytest.param(
            "a long answer",
            "the plugin's process sent a malformed answer and was killed",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_death_is_reported_and_the_next_call_restarts_the_process(
    load: Load, installed: Path, what: str, message: str
) -> None:
    plugin = load()
    plugin.start()
    first = pid(plugin)
    with pytest.raises(UnclearError) as caught:
        plugin.export_batch([asking(what)])
    assert re.fullmatch(message, str(caught.value))
    assert gone(first)
    assert plugin.export_batch([push()]) == ExportResult()
    assert plugin.restarts == 1
    assert pid(plugin) != first
    assert journal(installed) == ["started", "started", "took 1"]


@pytest.mark.full
def test_a_death_between_calls_is_reported_too(load: Load) -> None:
    plugin = load()
    plugin.start()
    os.kill(pid(plugin), signal.SIGKILL)
    with pytest.raises(UnclearError, match="signal 9"):
        plugin.export_batch([push()])
    assert plugin.export_batch([push()]) == ExportResult()
    os.kill(pid(plugin), signal.SIGKILL)
    with pytest.raises(PluginCrashError, match="signal 9"):
        plugin.stop()


@pytest.mark.parametrize(
    "what", [pytest.param("hang", marks=pytest.mark.full), "hang with the interpreter's lock"]
)
def test_a_hang_ends_at_the_time_out(load: Load, what: str) -> None:
    # Its start has this time too, also on a slow machine.
    plugin = load(process={"call_timeout_s": 4.0})
    plugin.start()
    first = pid(plugin)
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(RetryableError, match=r"export took longer than 4 s: the .* was killed"):
            plugin.export_batch([asking(what)])
        assert 3.9 < time.monotonic() - began < 120
    assert gone(first)
    assert plugin.restarts == 1
    assert plugin.export_batch([push()]) == ExportResult()


def test_a_memory_hog_ends_at_its_bound_and_takes_none_of_ours(load: Load) -> None:
    def memory(process: int | str, key: str) -> int:
        (kilobytes,) = re.findall(rf"^{key}:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.M)
        return int(kilobytes) * 1024

    plugin = load(process={"max_memory_bytes": MEMORY})
    plugin.start()
    ours, once_started = memory("self", "VmRSS"), memory(pid(plugin), "VmSize")
    limits = Path(f"/proc/{pid(plugin)}/limits").read_text()
    (bound,) = re.findall(r"^Max address space\s+(\d+) ", limits, re.M)
    assert once_started + MEMORY - 1_000_000 < int(bound) <= once_started + MEMORY
    with pytest.raises(UnclearError, match=r"reached its limit process\.max_memory_bytes"):
        plugin.export_batch([asking("hog")])
    assert memory("self", "VmRSS") - ours < 8_000_000
    assert plugin.export_batch([push()]) == ExportResult()
    assert plugin.restarts == 1


@pytest.mark.full
def test_a_push_that_kills_the_process_costs_no_other(load: Load, installed: Path) -> None:
    (hosted,) = load_plugins(
        [
            {
                "type": "misbehaving",
                "isolation": "process",
                "delivery": "memory",
                "journal": str(installed / "journal"),
                **FAST,
            }
        ]
    )
    host = PluginHost([hosted])
    for item in (push(0), asking("exit", 1), push(2), push(3), push(4)):
        host.offer(item)
    host.start()
    wait_for(lambda: host.statistics()[0].exported_pushes == 4, timeout_s=60)
    wait_for(lambda: total(host.statistics()[0]) == 5)
    assert host.stop(60)
    (statistics,) = host.statistics()
    assert {reason: n for reason, n in statistics.dropped.items() if n} == {DropReason.PERMANENT: 1}


# -- start and stop --------------------------------------------------------------------------------


@pytest.mark.full
def test_a_failed_start_is_reported_and_may_succeed_later(load: Load, installed: Path) -> None:
    plugin = load(needs=str(installed / "needed"))
    with pytest.raises(
        RetryableError, match=r"can't be started in its process: FileNotFoundError at .*needed"
    ):
        plugin.start()
    with pytest.raises(RetryableError, match="can't be started in its process"):
        plugin.export_batch([push()])
    plugin.stop()
    (installed / "needed").touch()
    plugin.start()
    assert plugin.export_batch([push()]) == ExportResult()


def test_secrets_in_files_are_read_again_when_it_is_started_again(load: Load, installed: Path) -> None:
    token = installed / "token"
    token.write_text("hunter2-old")
    plugin = load(token={"file": str(token)})
    token.unlink()
    with pytest.raises(RetryableError, match=f"token: the secret's file {token} cannot be read"):
        plugin.start()
    token.write_text("hunter2-new")
    plugin.start()
    with pytest.raises(RetryableError, match=r"^away, \*{10}$"):
        plugin.export_batch([asking("retryable")])


def test_settings_are_checked_before_anything_starts(load: Load) -> None:
    with pytest.raises(PluginConfigError, match=r"plugins\[0\]\.tokn: unknown key; did you mean token\?"):
        load(tokn="hunter2")


# -- what it shares with the receiver --------------------------------------------------------------


def test_secrets_are_in_neither_its_arguments_nor_its_environment(
    load: Load, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TELEMETRY_PLUGINS__0__TOKEN", "hunter2-of-the-environment")
    monkeypatch.setenv("LEFT_ALONE", "as it was")
    (installed / "token").write_text("hunter2-of-a-file")
    for token in ("hunter2-in-place", {"file": str(installed / "token")}):
        plugin = load(token=token)
        plugin.start()
        shown = [Path(f"/proc/{pid(plugin)}/{name}").read_bytes() for name in ("cmdline", "environ")]
        assert b"misbehaving" in shown[0]
        assert b"hunter2" not in b"".join(shown)
        assert b"LEFT_ALONE=as it was" in shown[1]


@pytest.mark.parametrize("receiver_is_dumpable", [False, True])
def test_its_memory_is_as_private_as_the_receivers(
    load: Load, monkeypatch: pytest.MonkeyPatch, *, receiver_is_dumpable: bool
) -> None:
    monkeypatch.setattr(dumps, "allowed", lambda: receiver_is_dumpable)
    plugin = load()
    plugin.start()
    result = plugin.export_batch([asking("dumpable")])
    assert result is not None
    dumpable, core_bytes = result.message.split()
    assert dumpable == str(receiver_is_dumpable)
    assert receiver_is_dumpable or core_bytes == "0"


def test_it_inherits_no_descriptor_but_its_own(load: Load) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        plugin = load()
        plugin.start()
        result = plugin.export_batch([asking("descriptors")])
        links = {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{pid(plugin)}/fd").iterdir()}
    assert result is not None
    assert len(links) == 4, "standard streams and the channel"
    assert links["0"] == "/dev/null"
    assert len(result.message.split()) == 5, "and the folder that it was reading"


def test_signals_to_the_group_are_the_receivers(load: Load) -> None:
    plugin = load()
    plugin.start()
    first = pid(plugin)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(first, number)
    assert plugin.export_batch([push()]) == ExportResult()
    assert (pid(plugin), plugin.restarts) == (first, 0)


@contextmanager
def receiver_with(what: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process, with the plugin in one of its own that is busy with a push; yields both."""
    code = (
        "import sys, threading, time\n"
        "from pathlib import Path\n"
        "sys.path[:0] = sys.argv[1:3]\n"
        "from receiver.host.discovery import load_plugins\n"
        "from tests.unit.host.isolation.test_proxy import asking\n"
        f"journal = {str(folder / 'journal')!r}\n"
        "config = {'type': 'misbehaving', 'isolation': 'process', 'journal': journal}\n"
        "plugin = load_plugins([config])[0].plugin\n"
        "plugin.start()\n"
        "print(plugin._process._popen.pid, flush=True)\n"
        f"plugin.export_batch([asking({what!r})])\n"
        "time.sleep(600)\n"
    )
    receiver = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(TREE)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert receiver.stdout is not None
        yield receiver, int(receiver.stdout.readline())
    finally:
        receiver.kill()
        receiver.communicate()


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("nothing", marks=pytest.mark.full),
        pytest.param("hang", marks=pytest.mark.full),
        "hang with the interpreter's lock",
    ],
)
def test_it_ends_when_the_receiver_is_killed(installed: Path, what: str) -> None:
    with receiver_with(what, installed) as (receiver, process):
        time.sleep(0.3)
        assert not gone(process)
        receiver.kill()
        receiver.wait()
        wait_for(lambda: gone(process))


# -- our own plugins -------------------------------------------------------------------------------


@contextmanager
def started(**config: Any) -> Iterator[PluginProxy]:
    (hosted,) = load_plugins([{"isolation": "process", **config}])
    assert isinstance(hosted.plugin, PluginProxy)
    hosted.plugin.start()
    try:
        yield hosted.plugin
    finally:
        hosted.plugin.stop()


@pytest.mark.full
def test_console_prints_where_the_receiver_prints(capfd: pytest.CaptureFixture[str]) -> None:
    with started(type="console") as plugin:
        for name in ("java44-producer-star-01", "ck-producer-star-01"):
            one = client_push(name)
            plugin.export(one.context, one.payload)
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == ["push", "push"]


@pytest.mark.full
def test_otlp_over_http() -> None:
    with http_destination() as server:
        _exports({"endpoint": f"http://127.0.0.1:{server.port}", "protocol": "http"}, server.bodies)


def test_otlp_over_grpc_within_the_least_memory() -> None:
    with grpc_destination() as server:
        _exports(
            {"endpoint": f"http://127.0.0.1:{server.port}", "process": {"max_memory_bytes": MEMORY}},
            server.bodies,
        )


def _exports(own: dict[str, Any], bodies: list[bytes]) -> None:
    pushes = [client_push(), client_push("ck-producer-star-01"), client_push("franz-producer-okprefix-02")]
    with started(type="otlp", **own) as plugin:
        assert plugin.max_batch_items > 1
        for _ in range(3):
            assert plugin.export_batch(pushes) == ExportResult()
    assert bodies == [b"".join(item.payload.data for item in pushes)] * 3
