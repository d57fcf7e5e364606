"""Generates README.md's table and values.schema.json from the chart's values.yaml."""
