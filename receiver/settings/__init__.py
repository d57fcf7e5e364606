"""The configuration: models, and loading from YAML and the environment."""
