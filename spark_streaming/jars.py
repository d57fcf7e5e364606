"""Owns the jars that Spark gets beside its own: the decoder, the Kafka source, Delta.

They are looked for in the folder that ``KAFKA_TELEMETRY_JARS`` names, then in ``jars/`` beside this module
(an image has them in one of the two), then in the user's cache; what is in none is built into the cache, from
the Java sources and the ``pom.xml`` of ``decoder/``. A folder of the cache is named by a hash of what it is
made from, so that one which is there is complete and up to date. It must not start Spark.
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

__all__ = ["JarsError", "jars"]

_HERE: Final = Path(__file__).parent
_DECODER: Final = _HERE / "decoder"
_POM: Final = _DECODER / "pom.xml"
_VARIABLE: Final = "KAFKA_TELEMETRY_JARS"
_TIMEOUT_S: Final = 900.0
_TOOLS: Final = {
    "javac": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "jar": "a JDK of Java 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "Maven (Debian: apt-get install maven)",
}


class JarsError(Exception):
    """Jars are missing and can't be built; the message says why, and how to get them."""


def jars(*, kafka: bool, delta: bool = False) -> tuple[Path, ...]:
    """Find the jars, or build them, saying so on standard error.

    Args:
        kafka: Whether the source for Kafka is needed.
        delta: Whether Delta tables are.

    Returns:
        Absolute paths, the decoder's first.

    Raises:
        JarsError: They are not there and can't be built.
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
                f"{named}` where there are a JDK and Maven, or unset it"
            )
        return folder
    beside = _HERE / "jars" / name
    return beside if _has_jars(beside) else _built(name)


def _has_jars(folder: Path) -> bool:
    return any(folder.glob("*.jar"))


def _built(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base).absolute() / "kafka-client-telemetry"
    folder = cache / f"spark-{name}-{_hash(name)}"
    if not folder.is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _exclusive(cache / f".spark-{name}.lock", name):
                if not folder.is_dir():
                    _say(f"{name}: building into {folder} ...")
                    _build_atomically(folder, _BUILD[name])
        except OSError as error:
            raise JarsError(f"the jars can't be put into {cache}: {error}") from None
    return folder


def _hash(name: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 over what a set is made from."""
    digest = hashlib.sha256(pyspark.__version__.encode())
    for source in _sources() if name == "decoder" else (_POM,):
        content = source.read_bytes()
        digest.update(f"\0{source.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> tuple[Path, ...]:
    return tuple(sorted(_DECODER.rglob("*.java")))


@contextmanager
def _exclusive(path: Path, name: str) -> Iterator[None]:
    """Hold a lock, which the kernel frees when its holder dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{name}: another process builds it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_atomically(folder: Path, build: Callable[[Path], None]) -> None:
    """Let ``build`` fill a new folder, then give it its name: it is there whole or not at all."""
    work = Path(tempfile.mkdtemp(prefix=f".building-{folder.name}-", dir=folder.parent))
    try:
        build(work)
        work.chmod(0o755)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_decoder(folder: Path) -> None:
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars"
    with tempfile.TemporaryDirectory(prefix="classes-") as classes:
        # Spark's jars name others in their manifests that are not there, which javac would warn of.
        flags = ("--release", "17", "-Xlint:all,-path", "-Werror", "-encoding", "UTF-8")
        _run(["javac", *flags, "-cp", f"{spark}/*", "-d", classes, *map(str, _sources())])
        _run(["jar", "--create", "--file", str(folder / "decoder.jar"), "-C", classes, "."])


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


_BUILD: Final[Mapping[str, Callable[[Path], None]]] = {
    "decoder": _build_decoder,
    "kafka": functools.partial(_fetch, "kafka"),
    "delta": functools.partial(_fetch, "delta"),
}


def _run(command: Sequence[str]) -> None:
    name = command[0]
    if shutil.which(name) is None:
        raise JarsError(
            f"{name} is missing, to build what Spark needs: install {_TOOLS[name]}, or name a folder that "
            f"`python -m spark_streaming.jars FOLDER` has filled elsewhere in {_VARIABLE}"
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
        raise JarsError(f"`{name}` still ran after {_TIMEOUT_S:g} s and was ended") from None
    if done.returncode:
        said = done.stdout[-3000:].strip()
        raise JarsError(f"`{' '.join(command)[:300]}` ended with {done.returncode}:\n{said}")


def _say(line: str) -> None:
    print(f"jars: {line}", file=sys.stderr, flush=True)  # noqa: T201 -- for whoever waits


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m spark_streaming.jars",
        description="Build the jars that Spark needs, which otherwise happens when the roll-up first runs.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, help=f"also copy them there, for an image; {_VARIABLE} then names it"
    )
    folder = parser.parse_args().folder
    try:
        for name in _BUILD:
            built = _built(name)
            if folder is not None:
                shutil.copytree(built, folder / name, dirs_exist_ok=True)
    except (JarsError, OSError) as error:
        sys.exit(f"jars: {error}")


if __name__ == "__main__":
    _main()
