"""Dashboards and alert rules as code: ``python -m deploy.dashboards`` writes them for the chart.

They show the roll-up's views and the receiver's own metrics. Queries use the documented views only
(docs/rollup-tables.md), because Grafana's role cannot read anything else. Tests run the queries.
"""
