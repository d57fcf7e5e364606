"""Dashboards and alert rules as code: ``python -m deploy.dashboards`` writes them for the chart.

Owns what is drawn of the roll-up's views and the receiver's own metrics. Of PostgreSQL it uses the
documented views alone (docs/rollup-tables.md), as Grafana's role can read nothing else. It talks to
nobody: queries are run, checked and drawn by tests.
"""
