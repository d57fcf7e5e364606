"""Generators of the chart, the dashboards and the docs site, and the images' build steps."""
