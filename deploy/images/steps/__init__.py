"""What the Dockerfiles run, each step a script of its own that runs without an engine too."""
