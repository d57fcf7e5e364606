# ruff: noqa: S608 - made of this package's own words; what users choose is quoted by Grafana (:sqlstring).
"""Owns the variables that dashboards have in common, so that links between them keep what is chosen."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import QueryVariable

from deploy.dashboards.grafana import choice
from deploy.dashboards.sql import BY_CLIENT, BY_FLEET, SEEN, chosen, everybody, options, quoted

__all__ = ["client_variables", "cluster", "sending", "software"]


def cluster() -> QueryVariable:
    """The variable ``cluster``."""
    return choice("cluster", "Cluster", "Kafka clusters by id", _values("cluster_id", {}))


def software() -> QueryVariable:
    """The variable ``software``."""
    above = {"cluster": "cluster_id"}
    return choice(
        "software", "Software", "What clients call themselves", _values("client_software_name", above)
    )


def client_variables() -> tuple[QueryVariable, ...]:
    """``cluster``, ``software``, ``principal``, ``group`` and ``client_id``, each narrowed by the others."""
    variables = [cluster(), software()]
    above = dict(BY_FLEET)
    for name, label, description in (
        ("principal", "Principal", "Who the brokers' listeners say the clients are"),
        ("group", "Group", "Consumer groups"),
        ("client_id", "Client id", "Client ids, as applications set them"),
    ):
        variables.append(choice(name, label, description, _values(BY_CLIENT[name], above)))
        above[name] = BY_CLIENT[name]
    return tuple(variables)


def sending(metrics: tuple[str, ...], who: str, *, by_client: bool = True) -> QueryVariable:
    """The hidden variable ``sending``: software that sends any of some metrics, so that it is of one kind.

    Args:
        metrics: Metrics that every client of the kind has.
        who: The kind, for the description.
        by_client: Whether the dashboard has the variables of clients, which narrow it.
    """
    narrowed = (
        f"\n  AND ({everybody(list(BY_CLIENT))} OR client_software_name IN (\n"
        f"    SELECT client_software_name FROM telemetry.client WHERE {chosen(BY_FLEET | BY_CLIENT)}))"
    )
    query = (
        "SELECT DISTINCT client_software_name FROM telemetry.fleet_1d\n"
        "WHERE bucket > $__timeFrom()::timestamptz - interval '1 day' AND bucket <= $__timeTo()\n"
        f"  AND metric IN ({quoted(metrics)}) AND {chosen(BY_FLEET)} AND client_software_name IS NOT NULL"
        f"{narrowed if by_client else ''}\nORDER BY 1"
    )
    return choice(
        "sending",
        "Sending",
        f"Software of {who} in view",
        options("client_software_name", query),
        hidden=True,
        all_value=None,
    )


def _values(column: str, above: dict[str, str]) -> str:
    narrowed = f" AND {chosen(above)}" if above else ""
    return options(
        column,
        f"SELECT DISTINCT {column} FROM telemetry.client\nWHERE {column} IS NOT NULL AND {SEEN}{narrowed}\n"
        "ORDER BY 1 LIMIT 5000",
    )
