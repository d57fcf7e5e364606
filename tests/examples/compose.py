"""Resolves the compose example as Docker Compose does, and moves its files to loopback.

The model is that of the compose specification's reference loader, which Docker Compose is built on.
This module starts nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.testbed import parts

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
#: The compose example.
COMPOSE: Final = EXAMPLES / "docker-compose"


class InvalidComposeError(Exception):
    """The compose file breaks the specification; the message is the loader's."""


def resolve(file: Path) -> dict[str, Any]:
    """Load a compose file: validated, interpolated, with absolute paths.

    Raises:
        InvalidComposeError: It breaks the specification.
        NotSetUpError: The loader is not built.
    """
    done = subprocess.run(
        [parts.COMPOSE.require() / "compose-spec", "--format", "json", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=file.parent,
    )
    if done.returncode:
        raise InvalidComposeError(done.stderr)
    model: dict[str, Any] = json.loads(done.stdout)
    return model


def replaced(text: str, places: Mapping[str, object]) -> str:
    """Replace addresses and folders in a text; the longest match wins."""
    longest_first = sorted(places, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: str(places[found[0]]), text)


class Relocated:
    """The compose example with only its addresses and folders replaced.

    Args:
        model: The resolved compose file.
        folder: Where the files go.
        places: What stands in the place of an address or a folder.
    """

    def __init__(self, model: Mapping[str, Any], *, folder: Path, places: Mapping[str, object]) -> None:
        self._model = model
        self._folder = folder
        self._places = places

    def _text(self, text: str) -> str:
        return replaced(text, self._places)

    def command(self, service: str) -> list[str]:
        """A service's command, with the mounted files that it names."""
        files = self.files(service)
        words: Sequence[str] = self._model["services"][service]["command"]
        moved = []
        for word in words:
            name = next((target for target in files if word.endswith(target)), None)
            moved.append(word.removesuffix(name) + str(files[name]) if name else self._text(word))
        return moved

    def environment(self, service: str) -> dict[str, str]:
        """A service's environment variables."""
        variables: Mapping[str, object] = self._model["services"][service].get("environment") or {}
        return {name: self._text(str(value)) for name, value in variables.items()}

    def files(self, service: str) -> dict[str, Path]:
        """The files that are mounted into a service, by their paths in it, written anew."""
        written = {}
        for mount in self._model["services"][service].get("volumes", ()):
            if mount["type"] == "bind" and (source := Path(mount["source"])).is_file():
                file = self._folder / service / source.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self._text(source.read_text()))
                written[mount["target"]] = file
        return written
