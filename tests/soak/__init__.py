"""Long runs of real parts under faults, to find losses and growth: ``make soak``."""
