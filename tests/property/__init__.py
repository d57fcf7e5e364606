"""Property tests. ``tests/exploration.py`` says how they draw; ``make fuzz`` runs for long."""
