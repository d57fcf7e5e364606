"""Every test that takes ``wire`` runs with each way in which bytes can arrive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.session.support import ARRIVALS, Wire


@pytest.fixture(params=ARRIVALS)
def wiring(request: pytest.FixtureRequest) -> Callable[..., Wire]:
    """Return a factory of :class:`Wire` that sets the arrival."""
    arrival: str = request.param

    def make(**arguments: object) -> Wire:
        return Wire(arrival=arrival, **arguments)  # type: ignore[arg-type]  # as the test says

    return make


@pytest.fixture
def wire(wiring: Callable[..., Wire]) -> Wire:
    """A session in front of a broker that was asked before."""
    return wiring()
