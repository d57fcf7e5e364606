"""Back-pressure: the factor on push intervals while a destination is behind."""

from __future__ import annotations

import pytest

from receiver.settings.backpressure import BackPressureSettings
from receiver.telemetry.control.backpressure import BackPressure

EVERY_S = 5


def settings(**changes: object) -> BackPressureSettings:
    return BackPressureSettings.model_validate(
        {"enabled": True, "max_factor": 8, "behind_s": 60, "step_s": 30} | changes
    )


class Loop:
    """Observes every few seconds, as the application does."""

    def __init__(self, configured: BackPressureSettings) -> None:
        self.pressure = BackPressure(configured)
        self.now = 1000.0

    def run(self, seconds: int, **lags: float) -> list[int]:
        """Return the factor after each observation."""
        factors = []
        for _ in range(seconds // EVERY_S):
            self.now += EVERY_S
            factors.append(self.pressure.observe(lags, self.now))
        return factors


def test_the_factor_stays_while_no_destination_is_behind() -> None:
    loop = Loop(settings())
    assert set(loop.run(600, otlp=59.0)) == {1}
    assert set(loop.run(600, otlp=60.0)) == {1}
    assert loop.run(600) == [1] * 120
    assert (loop.pressure.lengthened, loop.pressure.shortened, loop.pressure.plugin) == (0, 0, None)


def test_the_factor_doubles_after_each_step_up_to_the_maximum() -> None:
    loop = Loop(settings())
    assert loop.run(35, otlp=61.0, console=0.0) == [1, 1, 1, 1, 1, 1, 2]
    assert loop.run(30, otlp=90.0, console=0.0) == [2, 2, 2, 2, 2, 4]
    assert loop.run(30, otlp=120.0, console=0.0) == [4, 4, 4, 4, 4, 8]
    assert set(loop.run(300, otlp=400.0, console=0.0)) == {8}
    assert (loop.pressure.lengthened, loop.pressure.plugin) == (3, "otlp")


def test_the_factor_halves_when_few_pushes_wait() -> None:
    loop = Loop(settings())
    loop.run(35, otlp=61.0)
    assert loop.pressure.factor == 2
    assert loop.run(35, otlp=29.0) == [2, 2, 2, 2, 2, 2, 1]
    assert (loop.pressure.shortened, loop.pressure.plugin) == (1, None)


def test_between_the_thresholds_the_factor_stays() -> None:
    loop = Loop(settings())
    loop.run(35, otlp=61.0)
    assert set(loop.run(600, otlp=45.0)) == {2}


def test_a_break_restarts_the_time() -> None:
    loop = Loop(settings())
    for _ in range(10):
        assert set(loop.run(25, otlp=61.0)) == {1}
        assert set(loop.run(5, otlp=45.0)) == {1}
    loop.run(35, otlp=61.0)
    for _ in range(10):
        assert set(loop.run(25, otlp=1.0)) == {2}
        assert set(loop.run(5, otlp=45.0)) == {2}


def test_the_plugin_that_is_furthest_behind_is_the_reason() -> None:
    loop = Loop(settings())
    loop.run(35, otlp=61.0, kafka_topic=70.0, console=0.0)
    assert loop.pressure.plugin == "kafka_topic"
    loop.run(30, otlp=100.0, kafka_topic=0.0)
    assert loop.pressure.plugin == "otlp"


def test_one_plugin_behind_keeps_the_factor() -> None:
    loop = Loop(settings())
    loop.run(35, otlp=61.0)
    assert set(loop.run(300, otlp=45.0, console=0.0)) == {2}


@pytest.mark.parametrize(("most", "factors"), [(2, {2}), (3, {2, 3}), (6, {2, 4, 6}), (64, {2, 4, 8, 16})])
def test_the_maximum_need_not_be_a_power_of_two(most: int, factors: set[int]) -> None:
    loop = Loop(settings(max_factor=most))
    assert set(loop.run(125, otlp=61.0)) - {1} == factors
    assert set(loop.run(125, otlp=0.0)) >= factors
    assert loop.pressure.factor == 1


def test_disabling_resets_the_factor_at_once() -> None:
    loop = Loop(settings())
    loop.run(95, otlp=61.0)
    loop.pressure.replace_settings(settings(enabled=False))
    assert (loop.pressure.factor, loop.pressure.plugin) == (1, None)
    assert set(loop.run(300, otlp=61.0)) == {1}
    loop.pressure.replace_settings(settings())
    assert loop.run(35, otlp=61.0) == [1, 1, 1, 1, 1, 1, 2]


def test_a_smaller_maximum_applies_at_once() -> None:
    loop = Loop(settings())
    loop.run(95, otlp=61.0)
    assert loop.pressure.factor == 8
    loop.pressure.replace_settings(settings(max_factor=2))
    assert loop.pressure.factor == 2
    assert loop.run(35, otlp=0.0)[-1] == 1
