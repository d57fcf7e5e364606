"""Back-pressure follows its rule for any sequence of lags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from receiver.settings.backpressure import BackPressureSettings
from receiver.telemetry.control.backpressure import BackPressure

BEHIND_S, STEP_S = 60.0, 30.0

_LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 20),
        st.sampled_from((0.0, 29.9, 30.0, 45.0, 60.0, 60.1, 1e6)),
        st.sampled_from((0.0, 31.0, 61.0)),
    ),
    max_size=200,
)


@given(looks=_LOOKS, most=st.integers(2, 64))
def test_a_step_needs_the_whole_time_above_or_below_the_threshold(
    looks: list[tuple[float, float, float]], most: int
) -> None:
    pressure = BackPressure(
        BackPressureSettings(enabled=True, max_factor=most, behind_s=BEHIND_S, step_s=STEP_S)
    )
    now, factor = 0.0, 1
    side, side_since = 0, now
    for wait_s, look, other in looks:
        now += wait_s
        lag_s = max(look, other)
        new_side = 1 if lag_s > BEHIND_S else -1 if lag_s < BEHIND_S / 2 else 0
        if new_side != side:
            side, side_since = new_side, now
        after = pressure.observe({"one": look, "other": other}, now)
        assert after == pressure.factor
        assert 1 <= after <= most
        if after != factor:
            assert now - side_since >= STEP_S
            side_since = now
            assert after in ((min(2 * factor, most),) if side > 0 else (factor // 2, (factor + 1) // 2)) or (
                factor == most and side < 0 and after < most <= 2 * after
            )
            assert (after > factor) == (side > 0)
        else:
            assert side == 0 or now - side_since < STEP_S or factor == (most if side > 0 else 1)
            if side and now - side_since >= STEP_S:
                side_since = now
        factor = after
        assert (pressure.plugin is None) == (factor == 1)
