"""The project's addresses, which pyproject.toml defines."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

#: The table `project` of pyproject.toml (PEP 621).
PROJECT: Final = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REPOSITORY: Final[str] = PROJECT["urls"]["Repository"]
