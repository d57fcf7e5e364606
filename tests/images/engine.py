"""Builds and runs the images without a container engine; each stage is a root folder.

The base is Debian's own, from ``debootstrap``: the distribution of the image that the Dockerfiles
name, not its bytes. Instructions are carried out as they stand; build arguments, layers, registries
and the network of containers are an engine's business and not tried here. It takes root, which
mounts and chroot(2) need.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.images import dockerfile
from tests.images.dockerfile import Instruction
from tests.testbed import cache
from tests.testbed.commands import run

SCRIPT: Final = Path(__file__).with_name("engine.sh")
TREE: Final = Path(__file__).parents[2]
RELEASE: Final = "bookworm"
_UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Settings that a build needs to reach package registries; none of them stays in an image.
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_JAVA_CERTIFICATES: Final = Path("/etc/ssl/certs/java/cacerts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount from outside.

    Attributes:
        source: File or folder of this machine.
        target: Where it is in the root folder.
        writable: Whether it can be written to.
    """

    source: Path
    target: str
    writable: bool = False

    @property
    def words(self) -> list[str]:
        """Its form in engine.sh."""
        return ["bind", str(self.source), self.target, "rw" if self.writable else "ro"]


#: An engine gives a container both: how its own name and others' become addresses.
_NAMES: Final = tuple(Mount(source=Path(name), target=name) for name in ("/etc/hosts", "/etc/resolv.conf"))


@dataclass(slots=True, kw_only=True)
class Image:
    """A root folder, and how its program runs; it changes while it is built.

    Attributes:
        root: The folder.
        environment: Variables.
        labels: Labels.
        folder: Where commands run.
        user: UID:GID.
        entrypoint: The program.
        command: Its arguments, where a user gives none.
        health: The command of the health check.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    labels: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def argv(self, arguments: Sequence[str], mounts: Sequence[Mount], env: Mapping[str, str]) -> list[str]:
        """Return the command that runs a program read-only, unprivileged, as its user.

        Args:
            arguments: The whole command line.
            mounts: What is mounted besides /tmp.
            env: Variables over the image's.

        Returns:
            The command for this machine.
        """
        return _argv(self, "ro", arguments, [*_NAMES, *mounts], {**self.environment, **env})


def _argv(
    image: Image, mode: str, arguments: Sequence[str], mounts: Sequence[Mount], env: Mapping[str, str]
) -> list[str]:
    binds = [word for mount in mounts for word in mount.words]
    variables = [f"{name}={value}" for name, value in env.items()]
    where = [str(image.root), mode, image.folder, image.user]
    return ["env", "-i", *variables, *_UNSHARE, "/bin/sh", str(SCRIPT), *where, *binds, "--", *arguments]


def base() -> Path:
    """Debian's root folder, made once and kept in the cache.

    Raises:
        BuildError: It can't be made.
    """
    folder = cache.cache_folder() / f"debian-{cache.recipe_hash([], RELEASE)}"
    with cache.exclusive("debian", lambda: None):
        if not folder.is_dir():
            cache.build_atomically(
                folder, lambda work: run(["debootstrap", "--variant=minbase", RELEASE, work])
            )
    return folder


def built(name: str) -> Image:
    """The image of this tree, built if it isn't in the cache.

    Args:
        name: Its folder in deploy/images.

    Raises:
        BuildError: A step failed.
    """
    context = {str(file): TREE / file for file in dockerfile.context(TREE)}
    return built_from(name, TREE / "deploy" / "images" / name / "Dockerfile", context)


def built_from(name: str, file: Path, context: Mapping[str, Path]) -> Image:
    """The image of a Dockerfile, built if it isn't in the cache.

    Args:
        name: What its folder in the cache is called by.
        file: The Dockerfile.
        context: Files and folders by their places in the context.

    Raises:
        BuildError: A step failed.
    """
    key = cache.recipe_hash([*context.values(), file], name, RELEASE, Path(__file__).read_text("utf-8"))
    folder = cache.cache_folder() / f"image-{name}-{key}"
    with cache.exclusive(f"image-{name}", lambda: None):
        if not folder.is_dir():
            cache.build_atomically(folder, lambda work: _build(file, context, work))
            cache.forget_unused(folder)
    return Image(root=folder / "root", **json.loads((folder / "image.json").read_text("utf-8")))


def _build(file: Path, context: Mapping[str, Path], folder: Path) -> None:
    source = folder / "context"
    for place, copied in context.items():
        target = source / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if copied.is_dir():
            shutil.copytree(copied, target, symlinks=True)
        else:
            shutil.copy2(copied, target, follow_symlinks=False)
    stages: list[Image] = []
    names: dict[str, Image] = {}
    for instruction in dockerfile.read(file):
        if instruction.name == "FROM":
            words = instruction.words
            root = folder / f"stage-{len(stages)}"
            if words[0] == "${RECEIVER}":
                receiver = built("receiver")
                run(["cp", "--archive", "--reflink=auto", receiver.root, root])
                stages.append(replace(receiver, root=root))
            elif words[0] == "scratch":
                root.mkdir()
                stages.append(Image(root=root))
            else:
                run(["cp", "--archive", "--reflink=auto", base(), root])
                stages.append(Image(root=root))
            names |= {words[-1]: stages[-1]} if len(words) > 1 else {}
        elif stages:
            _carry_out(instruction, stages[-1], names, source)
    last = stages.pop()
    described = {name: value for name, value in asdict(last).items() if name != "root"}
    (folder / "image.json").write_text(json.dumps(described), "utf-8")
    last.root.rename(folder / "root")
    for left in [source, *(stage.root for stage in stages)]:
        shutil.rmtree(left)


def _carry_out(instruction: Instruction, image: Image, stages: Mapping[str, Image], source: Path) -> None:
    match instruction.name:
        case "RUN":
            _run(instruction, image, source)
        case "COPY":
            stage = instruction.flag("from")
            _copy(instruction, image, source if stage is None else stages[stage].root)
        case "WORKDIR":
            image.folder = instruction.text
            (image.root / image.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "ENV":
            image.environment |= instruction.pairs
        case "LABEL":
            image.labels |= instruction.pairs
        case "USER":
            image.user = instruction.text
        case "ENTRYPOINT":
            image.entrypoint = instruction.words
        case "CMD":
            image.command = instruction.words
        case "HEALTHCHECK":
            command = Instruction(name="CMD", flags=(), text=instruction.text.removeprefix("CMD "))
            image.health = [] if command.text == "NONE" else command.words
        case "ARG" | "EXPOSE" | "STOPSIGNAL" | "VOLUME":
            pass


def _run(instruction: Instruction, image: Image, source: Path) -> None:
    mounts = list(_NAMES)
    env = dict(image.environment)
    for certificates, target, variable, value in (
        (_CERTIFICATES, "/run/certificates", "PIP_CERT", "/run/certificates"),
        (_JAVA_CERTIFICATES, "/run/cacerts", "MAVEN_OPTS", "-Djavax.net.ssl.trustStore=/run/cacerts"),
    ):
        if certificates.exists():
            mounts.append(Mount(source=certificates, target=target))
            env[variable] = value
    for mount in instruction.mounts:
        if mount["type"] == "cache":
            kept = cache.cache_folder() / "images" / mount["target"].strip("/")
            kept.mkdir(parents=True, exist_ok=True)
            mounts.append(Mount(source=kept, target=mount["target"], writable=True))
        else:
            mounts.append(Mount(source=source / mount["source"], target=mount["target"]))
    run(_argv(image, "rw", ["/bin/sh", "-c", instruction.text], mounts, {"HOME": "/root", **env}))
    # Mount points that the image has not.
    for mount in instruction.mounts:
        point = image.root / mount["target"].lstrip("/")
        if point.is_dir() and not any(point.iterdir()):
            point.rmdir()
    for name in ("certificates", "cacerts"):
        (image.root / "run" / name).unlink(missing_ok=True)


def _copy(instruction: Instruction, image: Image, root: Path) -> None:
    *sources, last = instruction.words
    target = Path(os.path.normpath(image.root / image.folder.lstrip("/") / last))
    if last.startswith("/"):
        target = image.root / last.lstrip("/")
    for name in sources:
        found = root / name.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, target, symlinks=True, dirs_exist_ok=True)
            continue
        into_folder = last.endswith("/") or last in {".", "./"}
        file = target / found.name if into_folder else target
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(found, file)
        mode = instruction.flag("chmod")
        if mode is not None:
            file.chmod(int(mode, 8))


def size(root: Path) -> int:
    """Bytes that a root folder takes."""
    said = subprocess.run(
        ["du", "--summarize", "--bytes", root], capture_output=True, text=True, check=True
    ).stdout
    return int(said.split()[0])
