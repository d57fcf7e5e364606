"""Property tests. How they run is set here, before any of them is imported.

No deadline for a single example and no complaint that drawing them is slow: both measure the wall
clock, and on a busy machine they fail tests of pure code whose outcome does not depend on it. A
test that hangs is ended by pytest's own time limit. ``make fuzz`` is what runs for long.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("no-clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no-clock")
