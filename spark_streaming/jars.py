"""Finds or builds the jars for Spark: decoder, Kafka source, Delta.

Jars are searched in ``KAFKA_TELEMETRY_JARS``, then in ``jars/`` beside this module (images have one
of the two), then in the user's cache. Missing ones are built into the cache from the Java sources
and ``pom.xml`` in ``decoder/``. Fetched jars must match the checksums in ``jars.sha256``. The name
of a cache folder contains a hash of its sources, so a folder that exists is complete and up to
date.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

_HERE: Final = Path(__file__).parent
_DECODER: Final = _HERE / "decoder"
_POM: Final = _DECODER / "pom.xml"
#: Checksums of the fetched jars, in the format of ``sha256sum``.
_CHECKSUMS: Final = _DECODER / "jars.sha256"
_VARIABLE: Final = "KAFKA_TELEMETRY_JARS"
_TIMEOUT_S: Final = 900.0
_TOOLS: Final = {
    "javac": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "jar": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Maven (Debian: apt-get install maven)",
}


class JarsError(Exception):
    """Jars are missing and can't be built. The message says how to get them."""


def jars(*, kafka: bool, delta: bool = False) -> tuple[Path, ...]:
    """Return the paths of the jars, the decoder's first. Builds missing ones.

    Raises:
        JarsError: Jars are missing and can't be built.
    """
    wanted = ["decoder", *(["kafka"] if kafka else []), *(["delta"] if delta else [])]
    return tuple(jar for name in wanted for jar in sorted(_folder(name).glob("*.jar")))


def _folder(name: str) -> Path:
    named = os.environ.get(_VARIABLE)
    if named is not None:
        folder = Path(named).absolute() / name
        if not _has_jars(folder):
            raise JarsError(
                f"{_VARIABLE} is {named}, but {folder} has no jars: run `python -m spark_streaming.jars "
                f"{named}` on a machine with a JDK and Maven, or unset the variable"
            )
        return folder
    bundled = _HERE / "jars" / name
    return bundled if _has_jars(bundled) else _cached(name)


def _has_jars(folder: Path) -> bool:
    return any(folder.glob("*.jar"))


def _cached(name: str) -> Path:
    """Return the folder of a jar set in the cache. Builds it if it is missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base).absolute() / "kafka-client-telemetry"
    folder = cache / f"spark-{name}-{_hash(name)}"
    if not folder.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _exclusive(cache / f".spark-{name}.lock", name):
                if not folder.is_dir():
                    _print(f"{name}: building into {folder} ...")
                    _build_atomically(folder, _BUILD[name])
        except OSError as error:
            raise JarsError(f"can't write the jars to {cache}: {error}") from None
    return folder


def _hash(name: str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the sources of a jar set."""
    digest = hashlib.sha256(pyspark.__version__.encode())
    for source in _sources() if name == "decoder" else (_POM, _CHECKSUMS):
        content = source.read_bytes()
        digest.update(f"\0{source.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> tuple[Path, ...]:
    return tuple(sorted(_DECODER.rglob("*.java")))


@contextmanager
def _exclusive(path: Path, name: str) -> Iterator[None]:
    """Hold a lock that the kernel frees when its holder dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _print(f"{name}: waiting for another process that builds it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    """Fill a temporary folder, then rename it, so that no folder is incomplete.

    The caller holds the lock, so existing temporary folders were left by a killed process.
    """
    name = folder.name.rsplit("-", 1)[0]
    for left_over in folder.parent.glob(f".building-{name}-*"):
        shutil.rmtree(left_over)
    work = Path(tempfile.mkdtemp(prefix=f".building-{name}-", dir=folder.parent))
    try:
        build(work)
        work.chmod(0o755)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_decoder(folder: Path) -> None:
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    with tempfile.TemporaryDirectory(prefix="classes-") as classes:
        # Without the lint "path", because manifests of Spark's jars refer to missing jars.
        flags = ("--release", "17", "-Xlint:all,-path", "-Werror", "-encoding", "UTF-8")
        _run(["javac", *flags, "-cp", f"{spark}/*", "-d", classes, *map(str, _sources())])
        _run(["jar", "--create", "--file", str(folder / "decoder.jar"), "-C", classes, "."])


def _fetch_verified(profile: str, folder: Path) -> None:
    _fetch(profile, folder)
    lines = (line.split() for line in _CHECKSUMS.read_text("utf-8").splitlines())
    locked = {jar: digest for digest, jar in lines if jar.startswith(f"{profile}/")}
    fetched = _digests(profile, folder)
    for jar in sorted(locked.keys() | fetched.keys()):
        expected, found = locked.get(jar, "none"), fetched.get(jar, "none")
        if found != expected:
            raise JarsError(
                f"{jar} was fetched with the SHA-256 {found}, but {_CHECKSUMS} has {expected}. After a "
                "change of pom.xml or pyspark, run `python -m spark_streaming.jars --lock` to write new "
                "checksums. Otherwise it is not the file that was tested: delete it from Maven's repository "
                "(~/.m2/repository) and try again. If it still differs, don't use it"
            )


def _digests(profile: str, folder: Path) -> dict[str, str]:
    return {
        f"{profile}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in sorted(folder.glob("*.jar"))
    }


def _lock() -> None:
    """Fetch all jars and write their checksums."""
    found: dict[str, str] = {}
    for profile in _PROFILES:
        with tempfile.TemporaryDirectory(prefix=f"{profile}-") as folder:
            _fetch(profile, Path(folder))
            found |= _digests(profile, Path(folder))
    _CHECKSUMS.write_text("".join(f"{digest}  {jar}\n" for jar, digest in found.items()), "utf-8")


def _fetch(profile: str, folder: Path) -> None:
    flags = ("--batch-mode", "--quiet", "--strict-checksums", "--activate-profiles", profile)
    _run(
        [
            "mvn",
            *flags,
            f"--file={_POM}",
            f"-Dspark.version={pyspark.__version__}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder}",
        ]
    )


#: Profiles in pom.xml.
_PROFILES: Final = ("kafka", "delta")
_BUILD: Final[Mapping[str, Callable[[Path], None]]] = {
    "decoder": _build_decoder,
    **{profile: functools.partial(_fetch_verified, profile) for profile in _PROFILES},
}


def _run(command: Sequence[str]) -> None:
    name = command[0]
    if shutil.which(name) is None:
        raise JarsError(
            f"{name} is needed to build jars for Spark: install {_TOOLS[name]}, or set {_VARIABLE} to a "
            "folder that `python -m spark_streaming.jars FOLDER` has filled on another machine"
        )
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JarsError(f"`{name}` was stopped after {_TIMEOUT_S:g} s") from None
    if done.returncode:
        output = done.stdout[-3000:].strip()
        raise JarsError(f"`{' '.join(command)[:300]}` failed with status {done.returncode}:\n{output}")


def _print(line: str) -> None:
    print(f"jars: {line}", file=sys.stderr, flush=True)  # noqa: T201 -- progress for the user


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m spark_streaming.jars",
        description="Build the jars that Spark needs. Otherwise the first run of the roll-up builds them.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help=f"copy the jars to this folder, to use it as {_VARIABLE}"
    )
    parser.add_argument(
        "--lock",
        action="store_true",
        help=f"only fetch the jars and write their checksums to {_CHECKSUMS.name}",
    )
    arguments = parser.parse_args()
    folder: Path | None = arguments.folder
    try:
        if arguments.lock:
            _lock()
            return
        for name in _BUILD:
            cached = _cached(name)
            if folder is not None:
                shutil.copytree(cached, folder / name, dirs_exist_ok=True)
    except (JarsError, OSError) as error:
        sys.exit(f"jars: {error}")


if __name__ == "__main__":
    _main()
