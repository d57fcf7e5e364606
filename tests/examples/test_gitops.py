"""The GitOps example: its folder by the command line, as a store, and by Terraform.

Terraform itself runs where ``terraform`` is installed and ``TERRAFORM_PLUGINS`` names a folder that
``terraform providers mirror`` has written, because tests download nothing. Without them, the
configuration is parsed, and compared with what the sidecar answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

from receiver.store.files import read_folder
from receiver.telemetry.subscription_document import FIELDS
from spark_streaming.plain_yaml import parse
from tests.examples.compose import EXAMPLES
from tests.integration.gateway.support import GatewaySidecar, config
from tests.testbed.broker import KafkaBroker
from tests.testbed.ports import free_port

EXAMPLE = EXAMPLES / "gitops"
NAMES = ["consumers", "orders", "producers"]
URL = "http://127.0.0.1:8642"
PLUGINS = os.environ.get("TERRAFORM_PLUGINS")


@pytest.fixture(scope="module")
def running() -> Iterator[GatewaySidecar]:
    with GatewaySidecar(config(free_port()), wait_for_broker=False) as sidecar:
        yield sidecar


@pytest.fixture
def sidecar(running: GatewaySidecar) -> GatewaySidecar:
    """A sidecar without subscriptions."""
    for name in names(running):
        running.http.delete(f"/v1/subscriptions/{name}").raise_for_status()
    return running


@pytest.fixture
def in_kafka(broker: KafkaBroker) -> Iterator[GatewaySidecar]:
    store = {
        "store": "kafka",
        "kafka": {"bootstrap_servers": broker.internal_bootstrap, "topic": "subscriptions-gitops"},
    }
    settings = config(broker.port("CLIENT"), subscriptions=store)
    with GatewaySidecar(settings, wait_for_broker=False) as sidecar:
        yield sidecar
        for name in names(sidecar):
            sidecar.http.delete(f"/v1/subscriptions/{name}").raise_for_status()


def names(sidecar: GatewaySidecar) -> list[str]:
    return [item["name"] for item in sidecar.http.get("/v1/subscriptions").json()["items"]]


def readme(sidecar: GatewaySidecar, what: str) -> subprocess.CompletedProcess[str]:
    """Run the one command of README.md that has ``what`` in it."""
    commands = re.findall(r"^    (kafka-telemetry .+)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    (command,) = [command for command in commands if what in command]
    _, *arguments = command.split()
    return subprocess.run(
        [Path(sys.executable).with_name("kafka-telemetry"), *arguments],
        cwd=EXAMPLE,
        env={**os.environ, "KAFKA_TELEMETRY_URL": sidecar.url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def check_pipeline(sidecar: GatewaySidecar) -> None:
    sidecar.http.put("/v1/subscriptions/by-hand", json={"metrics": ["x."]}).raise_for_status()
    shown = readme(sidecar, " diff ")
    assert (shown.returncode, shown.stdout.count("\n+ ")) == (3, 2)
    assert "- by-hand" in shown.stdout
    first = readme(sidecar, " apply ")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [*(f"{name}: created" for name in NAMES), "by-hand: deleted"]
    assert names(sidecar) == NAMES
    before = sidecar.http.get("/v1/subscriptions").json()

    again = readme(sidecar, " apply ")
    assert again.returncode == 0
    assert again.stdout.splitlines() == [f"{name}: unchanged" for name in NAMES]
    assert sidecar.http.get("/v1/subscriptions").json() == before
    same = readme(sidecar, " diff ")
    assert (same.returncode, same.stdout) == (0, "")
    assert readme(sidecar, " explain ").stdout.startswith("matches 0 of 0 clients")


def test_apply_with_prune_twice_changes_nothing(sidecar: GatewaySidecar) -> None:
    check_pipeline(sidecar)


@pytest.mark.full
def test_apply_with_prune_twice_changes_nothing_in_kafka(in_kafka: GatewaySidecar) -> None:
    check_pipeline(in_kafka)


def test_the_folder_is_one_for_the_store_too() -> None:
    folder = read_folder(EXAMPLE / "subscriptions.d")
    assert [subscription.name for subscription in folder.subscriptions.subscriptions] == NAMES


def test_terraform_knows_what_the_sidecar_answers(sidecar: GatewaySidecar) -> None:
    with (EXAMPLE / "terraform/main.tf").open() as source:
        document = hcl2.load(source)
    (local,) = document["locals"]
    (resource,) = (item['"restapi_object"']['"subscription"'] for item in document["resource"])
    defaults = {
        key: json.loads(value) if isinstance(value, str) else value
        for key, value in local["defaults"].items()
    }
    ours = {json.loads(field) for field in resource["ignore_changes_to"]}

    sidecar.http.put("/v1/subscriptions/a", json={"metrics": ["x."]}).raise_for_status()
    answer = sidecar.http.get("/v1/subscriptions/a").json()
    assert {key: value for key, value in answer.items() if key not in {*ours, "name", "metrics"}} == defaults
    assert {*defaults, "metrics"} == set(FIELDS)

    # As Terraform writes and reads it.
    for file in sorted((EXAMPLE / "subscriptions.d").iterdir()):
        data = {**defaults, "name": file.stem, **parse(file.read_bytes())}
        written = sidecar.http.put(f"/v1/subscriptions/{file.stem}", json=data)
        assert written.status_code == 201
        assert {key: value for key, value in written.json().items() if key not in ours} == data


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_terraform_formats_it_so() -> None:
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", EXAMPLE / "terraform"],
        env={**os.environ, "CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Terraform:
    """The example in a folder of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        self._folder = folder / "terraform"
        self._url = url
        assert self.run("init", "-input=false", f"-plugin-dir={PLUGINS}") == 0

    def run(self, *arguments: str) -> int:
        """Run a command and return its exit status."""
        done = subprocess.run(
            ["terraform", *arguments, *(["-no-color"] if arguments[0] != "init" else [])],
            cwd=self._folder,
            env={**os.environ, "TF_VAR_sidecar": self._url, "CHECKPOINT_DISABLE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode != 1, done.stdout + done.stderr
        return done.returncode

    def apply(self) -> None:
        """Apply the configuration, after which nothing is left to do."""
        assert self.run("apply", "-auto-approve", "-input=false") == 0
        assert self.differs() is False

    def differs(self) -> bool:
        """Whether Terraform would change something."""
        return self.run("plan", "-detailed-exitcode", "-input=false") == 2


@pytest.mark.full
@pytest.mark.skipif(
    shutil.which("terraform") is None or not PLUGINS,
    reason="terraform is not installed, or TERRAFORM_PLUGINS does not name a mirror of its providers",
)
def test_terraform_manages_subscriptions(sidecar: GatewaySidecar, tmp_path: Path) -> None:
    sidecar.http.put("/v1/subscriptions/by-hand", json={"metrics": ["x."]}).raise_for_status()
    more: dict[str, Any] = {"expires_at": "2100-01-31T12:00:00Z", "metrics": ["z."]}
    terraform = Terraform(tmp_path, sidecar.url)
    (tmp_path / "subscriptions.d/ends.yaml").write_text(json.dumps(more))
    terraform.apply()
    assert names(sidecar) == ["by-hand", "consumers", "ends", "orders", "producers"]

    # What others change is noticed and undone.
    before = sidecar.http.get("/v1/subscriptions/orders").json()["metrics"]
    sidecar.http.patch("/v1/subscriptions/orders", json={"metrics": ["y."]}).raise_for_status()
    sidecar.http.patch("/v1/subscriptions/producers", json={"match": {"client_id": "a"}}).raise_for_status()
    sidecar.http.delete("/v1/subscriptions/consumers").raise_for_status()
    assert terraform.differs()
    terraform.apply()
    assert sidecar.http.get("/v1/subscriptions/orders").json()["metrics"] == before
    assert sidecar.http.get("/v1/subscriptions/producers").json()["match"] == {}

    (tmp_path / "subscriptions.d/orders.yaml").unlink()
    terraform.apply()
    assert names(sidecar) == ["by-hand", "consumers", "ends", "producers"]
    assert terraform.run("destroy", "-auto-approve", "-input=false") == 0
    assert names(sidecar) == ["by-hand"]
