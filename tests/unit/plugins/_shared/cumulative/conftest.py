from __future__ import annotations

from pathlib import Path

import pytest

PAYLOADS = Path(__file__).parents[4] / "data" / "payloads"


@pytest.fixture
def java_pushes() -> list[tuple[bytes, float]]:
    """Three consecutive pushes of a Java producer, with their receive times."""
    return [((PAYLOADS / f"java44-producer-star-0{n}.bin").read_bytes(), float(10 * n)) for n in (1, 2, 3)]
