"""Writes the dashboards and alert rules into the chart's folder."""

from deploy.dashboards.written import write

write()
