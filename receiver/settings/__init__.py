"""The receiver's configuration: pydantic models, and loading from YAML and the environment."""
