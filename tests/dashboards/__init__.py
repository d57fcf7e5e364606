"""Checks and draws dashboards with Grafana's types and components, without its server."""
