# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""The variables that all dashboards share, so that links between them keep the selection."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import QueryVariable

from deploy.dashboards.grafana import choice
from deploy.dashboards.sql import (
    BY_CLIENT,
    BY_FLEET,
    DAY_S,
    SEEN,
    are_all,
    chosen,
    in_range,
    options,
    quoted,
)


def cluster() -> QueryVariable:
    """Return the variable ``cluster``."""
    return choice("cluster", "Cluster", "Kafka clusters by id", _values("cluster_id", {}))


def software() -> QueryVariable:
    """Return the variable ``software``."""
    above = {"cluster": "cluster_id"}
    return choice(
        "software", "Software", "The name that clients send (KIP-511)", _values("client_software_name", above)
    )


def client_variables() -> tuple[QueryVariable, ...]:
    """Return the variables of clients; each one narrows the next."""
    variables = [cluster(), software()]
    above = dict(BY_FLEET)
    for name, label, description in (
        ("principal", "Principal", "The authenticated principals"),
        ("group", "Group", "Consumer groups"),
        ("client_id", "Client id", "Client ids, as applications set them"),
    ):
        variables.append(choice(name, label, description, _values(BY_CLIENT[name], above)))
        above[name] = BY_CLIENT[name]
    return tuple(variables)


def sending(metrics: tuple[str, ...], kind: str, *, by_client: bool = True) -> QueryVariable:
    """Return the hidden variable ``sending``: software that sends any of some metrics.

    ``by_client``: the variables of clients narrow the list.
    """
    narrowed = (
        f"\n  AND ({are_all(list(BY_CLIENT))} OR client_software_name IN (\n"
        f"    SELECT client_software_name FROM telemetry.client WHERE {chosen(BY_FLEET | BY_CLIENT)}))"
    )
    query = (
        "SELECT DISTINCT client_software_name FROM telemetry.fleet_1d\n"
        f"WHERE {in_range('1d', before_s=DAY_S)}\n"
        f"  AND metric IN ({quoted(metrics)}) AND {chosen(BY_FLEET)} AND client_software_name IS NOT NULL"
        f"{narrowed if by_client else ''}\nORDER BY 1"
    )
    return choice(
        "sending",
        "Sending",
        f"Software of {kind} in view",
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
