"""The test kit: pure parts, by scripted clients in simulated time."""
