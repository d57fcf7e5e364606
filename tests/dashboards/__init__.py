"""Dashboards checked and drawn with Grafana's own types and components, for want of a Grafana server."""
