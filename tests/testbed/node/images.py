"""Owns the images of a node: root folders, which containerd gets once.

No registry has a part in it. A pod that names an image that is not here can't start.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from tests.images import archive, engine
from tests.images.engine import TREE, Image
from tests.testbed import cache, parts
from tests.testbed.helm import CHART
from tests.testbed.node.machine import Machine
from tests.testbed.node.settings import PAUSE

_HERE: Final = Path(__file__).parent
_CTR: Final = ("--namespace", "k8s.io", "--address", "/run/containerd/containerd.sock")
_VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text())
_VERSION: Final = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]

RECEIVER: Final = f"{_VALUES['image']['repository']}:{_VERSION}"
ROLLUP: Final = f"{_VALUES['rollup']['image']['repository']}:{_VERSION}"
KAFKA: Final = "docker.io/{repository}:{tag}".format(**_VALUES["exampleBroker"]["image"])


def _pause() -> Image:
    program = parts.NODE.require() / "pause"
    folder = cache.cache_folder() / f"image-pause-{cache.recipe_hash([program])}"

    def build(work: Path) -> None:
        (work / "root").mkdir()
        shutil.copy(program, work / "root" / "pause")

    with cache.exclusive("image-pause", lambda: None):
        if not folder.is_dir():
            cache.build_atomically(folder, build)
    return Image(root=folder / "root", user="65535:65535", command=["/pause"])


def _kafka() -> Image:
    context = {
        "steps": TREE / "deploy" / "images" / "steps",
        "libs": parts.EXAMPLES_KAFKA.require() / "jars",
        "run": _HERE / "kafka" / "run",
    }
    return engine.built_from("kafka", _HERE / "kafka" / "Dockerfile", context)


#: How each image is built.
_BUILT: Final[dict[str, Callable[[], Image]]] = {
    PAUSE: _pause,
    KAFKA: _kafka,
    RECEIVER: lambda: engine.built("receiver"),
    ROLLUP: lambda: engine.built("rollup"),
}


def build(*names: str) -> None:
    """Build images that are not in the cache, which needs no node.

    Raises:
        BuildError: One can't be built.
        NotSetUpError: A part that it is made of is not set up.
    """
    for name in names:
        _BUILT[name]()


class ImageStore:
    """containerd's images.

    Args:
        machine: Where containerd runs.
        folder: containerd's own folder, which outlives the machine.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine = machine
        self._notes = folder / "imported"
        self._notes.mkdir(exist_ok=True)

    def need(self, *names: str) -> None:
        """Make sure of images, by their names.

        Raises:
            BuildError: One can't be built.
            MachineError: containerd does not take one.
        """
        for name in names:
            self._need(name)

    def _need(self, name: str) -> None:
        image = _BUILT[name]()
        note = self._notes / name.replace("/", "_")
        if note.exists() and note.read_text() == str(image.root):
            return
        with tempfile.TemporaryDirectory(prefix="kafka-client-telemetry-image-") as folder:
            file = Path(folder) / "image.tar"
            archive.write(image, name, file, architecture=archive.ARCHITECTURES[platform.machine()])
            self._ctr("image", "import", "--local", str(file))
        note.write_text(str(image.root))

    def forget_containers(self) -> None:
        """Remove what an earlier run left in containerd's own records."""
        left = self._ctr("containers", "list", "--quiet").split()
        if left:
            self._ctr("containers", "remove", *left)

    def _ctr(self, *words: str) -> str:
        return self._machine.run(parts.NODE.require() / "ctr", *_CTR, *words)
