"""Owns the jars that Spark gets beside its own: the decoder, the Kafka source, Delta.

They are looked for in the folder that ``KAFKA_TELEMETRY_JARS`` names, then in ``jars/`` beside this module
(an image has them in one of the two), then in the user's cache; what is in none is built into the cache, from
the Java sources and the ``pom.xml`` of ``decoder/``. What is fetched must have the sums that ``jars.sha256``
has there. A folder of the cache is named by a hash of what it is made from, so that one which is there is
complete and up to date. It must not start Spark.
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
#: As of ``sha256sum``, of each jar that is fetched, below the folder of its set.
_LOCK: Final = _DECODER / "jars.sha256"
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
    for source in _sources() if name == "decoder" else (_POM, _LOCK):
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
    """Let ``build`` fill a new folder, then give it its name: it is there whole or not at all.

    The lock is held, so what is half built was left behind by somebody who was killed.
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
        # Spark's jars name others in their manifests that are not there, which javac would warn of.
        flags = ("--release", "17", "-Xlint:all,-path", "-Werror", "-encoding", "UTF-8")
        _run(["javac", *flags, "-cp", f"{spark}/*", "-d", classes, *map(str, _sources())])
        _run(["jar", "--create", "--file", str(folder / "decoder.jar"), "-C", classes, "."])


def _fetch_locked(profile: str, folder: Path) -> None:
    _fetch(profile, folder)
    locked = {jar: digest for jar, digest in _locked().items() if jar.startswith(f"{profile}/")}
    fetched = _sums(profile, folder)
    for jar in sorted(locked.keys() | fetched.keys()):
        expected, found = locked.get(jar, "none"), fetched.get(jar, "none")
        if found != expected:
            raise JarsError(
                f"{jar} was fetched with the SHA-256 {found}, but {_LOCK} says {expected}. After a change of "
                "pom.xml or pyspark, `python -m spark_streaming.jars --lock` writes the sums anew. Otherwise "
                "it is not the file that was tested: delete it from Maven's repository (~/.m2/repository), "
                "try again, and if that is no help, don't use it"
            )


def _locked() -> dict[str, str]:
    lines = (line.split() for line in _LOCK.read_text("utf-8").splitlines())
    return {jar: digest for digest, jar in lines}


def _sums(profile: str, folder: Path) -> dict[str, str]:
    """The SHA-256 of each jar of a folder."""
    return {
        f"{profile}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in sorted(folder.glob("*.jar"))
    }


def _lock() -> None:
    """Fetch all anew and write down what their sums are."""
    found: dict[str, str] = {}
    for profile in _PROFILES:
        with tempfile.TemporaryDirectory(prefix=f"{profile}-") as folder:
            _fetch(profile, Path(folder))
            found |= _sums(profile, Path(folder))
    _LOCK.write_text("".join(f"{digest}  {jar}\n" for jar, digest in found.items()), "utf-8")


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


#: Of pom.xml.
_PROFILES: Final = ("kafka", "delta")
_BUILD: Final[Mapping[str, Callable[[Path], None]]] = {
    "decoder": _build_decoder,
    **{profile: functools.partial(_fetch_locked, profile) for profile in _PROFILES},
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
    parser.add_argument(
        "--lock", action="store_true", help=f"only write the sums of what is fetched into {_LOCK.name} anew"
    )
    arguments = parser.parse_args()
    folder: Path | None = arguments.folder
    try:
        if arguments.lock:
            _lock()
            return
        for name in _BUILD:
            built = _built(name)
            if folder is not None:
                shutil.copytree(built, folder / name, dirs_exist_ok=True)
    except (JarsError, OSError) as error:
        sys.exit(f"jars: {error}")


if __name__ == "__main__":
    _main()
