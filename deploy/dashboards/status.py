# ruff: noqa: S608 - constants of this package.
"""The banner on top of each dashboard of the roll-up: how current its numbers are."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Panel, banner
from deploy.project import REPOSITORY

_WHAT_TO_DO: Final = f"{REPOSITORY}/blob/main/docs/dashboards.md#what-the-banner-says"
#: Reading is late by the grace period and the trigger interval; the job's maintenance runs once a
#: minute.
_LATE_S: Final = 600
_UTC: Final = "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'"

_STATUS: Final = f"""SELECT CASE
  WHEN NOT EXISTS (SELECT FROM telemetry.feed) THEN
    'No push has been read yet. Next: start kafka-telemetry rollup run, and add a subscription'
    || ' (kafka-telemetry subscriptions). If both are done, run kafka-telemetry doctor.'
  WHEN read_until < now() - interval '{_LATE_S} seconds' THEN
    'The roll-up is behind: it has read pushes until ' || {_UTC.format("read_until")}
    || '. Clients are shown as they were then. Check the job: kafka-telemetry rollup status.'
  WHEN EXISTS (SELECT FROM telemetry.feed WHERE stopped) THEN (
    SELECT 'No pushes arrive from ' || string_agg(
      'cluster ' || coalesce(cluster_id, '(unknown)') || ' since ' || {_UTC.format("newest_push_at")}, ', '
      ORDER BY newest_push_at
    ) || '. Its clients are shown as they were then. Check the sidecars and their delivery.'
    FROM telemetry.feed WHERE stopped)
  ELSE 'Up to date: pushes were read until ' || {_UTC.format("coalesce(read_until, whole_until)")}
END AS banner
FROM telemetry.progress"""


def status() -> Panel:
    """Build the banner. It also explains a database without tables or pushes."""
    # The server parses a query before it runs any branch of it. So the query of the tables is a
    # text, which ts_stat runs only if the tables exist. Its word may have 2046 bytes.
    quoted = f"SELECT array_to_tsvector(ARRAY[left(banner, 500)]) FROM (\n{_STATUS}\n) AS found".replace(
        "'", "''"
    )
    query = (
        "SELECT CASE\n"
        "  WHEN to_regclass('telemetry.feed') IS NULL THEN\n"
        "    'This database has no tables of this version of the roll-up. Next: run kafka-telemetry rollup"
        " migrate, then kafka-telemetry rollup run.'\n"
        f"  ELSE (SELECT word FROM ts_stat('{quoted}'))\n"
        "END AS banner"
    )
    return banner(
        "How current the numbers are: whether the roll-up reads pushes, and whether they arrive.",
        query,
        good="/^Up to date/",
        url=_WHAT_TO_DO,
    )
