"""What is made of the chart's values.yaml: README.md's table and values.schema.json."""
