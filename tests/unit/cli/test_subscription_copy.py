"""subscriptions copy: from a sidecar or a store into the store of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.store.sqlite import SqliteSubscriptionStore
from tests.unit.cli.conftest import Run, Sidecar

LISTENERS = "broker: {id: 1}\nlisteners: [{name: CLIENT, bind: '127.0.0.1:1', upstream: '127.0.0.1:2'}]\n"


@pytest.fixture
def here(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, run: Run) -> Sidecar:
    """A sidecar with two subscriptions, that is the default of every command."""
    monkeypatch.setenv("KAFKA_TELEMETRY_URL", sidecar.url)
    run("subscriptions", "put", "a", "-m", "a.", "--match", "principal=User:x")
    run("subscriptions", "put", "b", "-m", "b.")
    return sidecar


def configuration(tmp_path: Path, name: str, store: str) -> Path:
    file = tmp_path / f"{name}.yaml"
    file.write_text(f"{LISTENERS}subscriptions: {{{store}}}\n")
    return file


def content(file: Path) -> dict[str, tuple[str, ...]]:
    store = SqliteSubscriptionStore(file)
    try:
        return {subscription.name: subscription.metrics for subscription in store.load_all()}
    finally:
        store.close()


def test_a_sidecars_subscriptions_reach_another_store(run: Run, here: Sidecar, tmp_path: Path) -> None:
    store = tmp_path / "new.db"
    new = configuration(tmp_path, "new", f"store: sqlite, path: {store}")
    dry = run("subscriptions", "copy", "--to", str(new), "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "a: would be copied\nb: would be copied\n"), dry.stderr
    assert content(store) == {}
    copied = run("subscriptions", "copy", "--to", str(new))
    assert (copied.exit_code, copied.stdout) == (0, "a: copied\nb: copied\n"), copied.stderr
    assert content(store) == {"a": ("a.",), "b": ("b.",)}
    assert run("subscriptions", "copy", "--to", str(new)).stdout == "a: unchanged\nb: unchanged\n"


def test_another_form_is_replaced_by_force_only(run: Run, here: Sidecar, tmp_path: Path) -> None:
    store = tmp_path / "new.db"
    new = configuration(tmp_path, "new", f"store: sqlite, path: {store}")
    run("subscriptions", "copy", "--to", str(new))
    run("subscriptions", "put", "b", "-m", "changed.")
    run("subscriptions", "put", "c", "-m", "c.")
    refused = run("subscriptions", "copy", "--to", str(new))
    assert refused.exit_code == 1
    assert "its store has these in another form: b; give --force to replace them" in refused.stderr
    assert "c" not in content(store)
    forced = run("subscriptions", "copy", "--to", str(new), "--force")
    assert (forced.exit_code, forced.stdout) == (0, "a: unchanged\nb: replaced\nc: copied\n")
    assert content(store)["b"] == ("changed.",)


def test_a_store_of_another_configuration_may_be_the_source(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "old.d"
    folder.mkdir()
    (folder / "s.yaml").write_text("metrics: [s.]\n")
    old = configuration(tmp_path, "old", f"store: file, path: {folder}")
    new = configuration(tmp_path, "new", f"store: sqlite, path: {tmp_path / 'new.db'}")
    copied = run("subscriptions", "copy", "--from", str(old), "--to", str(new))
    assert (copied.exit_code, copied.stdout) == (0, "s: copied\n"), copied.stderr


def test_files_are_written_by_hand(run: Run, here: Sidecar, tmp_path: Path) -> None:
    folder = tmp_path / "new.d"
    folder.mkdir()
    new = configuration(tmp_path, "new", f"store: file, path: {folder}")
    refused = run("subscriptions", "copy", "--to", str(new))
    assert refused.exit_code == 1
    assert "subscriptions list --output yaml` prints what to write there" in refused.stderr


def test_a_mistake_in_the_configuration_is_named(run: Run, here: Sidecar, tmp_path: Path) -> None:
    new = configuration(tmp_path, "new", "store: other")
    refused = run("subscriptions", "copy", "--to", str(new))
    assert refused.exit_code == 2
    assert "new.yaml: subscriptions.store" in refused.stderr
