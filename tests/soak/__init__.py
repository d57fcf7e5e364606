"""Long runs of real parts under faults: what is lost, and whether anything grows. `make soak` runs them."""
