# ruff: noqa: S608 - constants of this package; Grafana quotes what users choose (:sqlstring).
"""Links from client instances to their logs and traces, whose addresses an operator sets.

The addresses are constants of a dashboard and no variables that a link could set. They have
placeholders such as `${KAFKA_CLIENT_ID}`: names that no variable of a dashboard has, because
Grafana replaces some of them twice.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import ConstantVariable
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from deploy.dashboards.panels import Panel, column, rows
from deploy.dashboards.queries import PROMETHEUS, promql
from deploy.dashboards.series import EVERY_CLIENT
from deploy.dashboards.sql import SEEN

#: The variables, and what they lead to.
ADDRESSES: Final = {"logs": "Logs", "traces": "Traces"}
#: The columns of the view `client` by placeholder.
PLACEHOLDERS: Final = {
    "KAFKA_CLIENT_ID": "client_id",
    "KAFKA_CLIENT_INSTANCE_ID": "client_instance_id",
    "KAFKA_GROUP_ID": "group_id",
    "KAFKA_PRINCIPAL": "principal",
    "KAFKA_CLIENT_ADDRESS": "client_source_address",
}
_TITLE: Final = "Logs and traces"
_DESCRIPTION: Final = (
    "Links to the logs and traces of each instance. Set their addresses in the chart's values, in the "
    "mixin, or as the constants *logs* and *traces* of this dashboard (docs/dashboards.md)."
)
_NOT_SET: Final = "no address is set (docs/dashboards.md)"
_MOST: Final = 50


class Address(Builder[models.VariableModel]):
    """A hidden constant with the address of logs or traces; empty: no link."""

    def __init__(self, name: str) -> None:
        self._name = name

    def build(self) -> models.VariableModel:
        """Return Grafana's model."""
        built = (
            ConstantVariable(self._name)
            .label(ADDRESSES[self._name])
            .description(f"URL of an instance's {self._name}, with placeholders; empty: no link")
            .value("")
            .build()
        )
        built.hide = models.VariableHide.HIDE_VARIABLE
        built.skip_url_sync = True
        return built


def logs_and_traces(condition: str, *, width: int) -> Panel:
    """Build the table of links of the client instances of a condition, the newest first."""
    url = "address"
    for placeholder, name in PLACEHOLDERS.items():
        # In an address each byte of a text is %xx. No name of a client can end or extend it.
        encoded = (
            f"coalesce(regexp_replace(encode(convert_to({name}, 'UTF8'), 'hex'), '(..)', '%\\1', 'g'), '')"
        )
        url = f"replace({url}, '$' || '{{{placeholder}}}', {encoded})"
    values = ", ".join(f"('{words}', ${{{name}:sqlstring}})" for name, words in ADDRESSES.items())
    query = (
        f"SELECT client_instance_id, what, {url} AS what_key\n"
        "FROM (\n"
        f"  SELECT * FROM telemetry.client\n  WHERE {SEEN}\n  AND {condition}\n"
        f"  ORDER BY last_seen DESC LIMIT {_MOST}\n"
        ") AS newest\n"
        f"CROSS JOIN (VALUES {values}) AS addresses (what, address)\n"
        "WHERE address <> ''\nORDER BY last_seen DESC, what"
    )
    return rows(
        _TITLE,
        _DESCRIPTION,
        query,
        {"client_instance_id": column("Instance"), "what": column("Show", links=_link("what_key"))},
        width=width,
        height=7,
        nothing=_NOT_SET,
    )


def logs_and_traces_on_prometheus(*, width: int) -> Panel:
    """Build the table of links of the chosen client instances.

    PromQL can't encode a text for a URL, so ids with other characters than letters, digits and
    `._~-` get no link.
    """
    ids = "client_id, client_instance_id"
    both = f'label_join(group by ({ids}) ({EVERY_CLIENT}), "of", " ", "client_id", "client_instance_id")'
    of = r"(?P<KAFKA_CLIENT_ID>[A-Za-z0-9._~-]+) (?P<KAFKA_CLIENT_INSTANCE_ID>[A-Za-z0-9_-]+)"
    found = " or ".join(
        f'label_replace(label_replace({both}, "url", "${{{name}:raw}}", "of", "{of}"), '
        f'"what", "{words}", "", "")'
        for name, words in ADDRESSES.items()
    )
    hidden = {name: column(name, hidden=True) for name in ("of", "url", "Value")}
    return rows(
        _TITLE,
        _DESCRIPTION,
        [promql(f"({found}) unless on (url) vector(0)", "", instant=True)],
        {
            "client_instance_id": column("Instance"),
            "client_id": column("Client id"),
            "what": column("Show", links=_link("url")),
            **hidden,
        },
        width=width,
        height=6,
        source=PROMETHEUS,
        transformations=[
            models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
        ],
        nothing=_NOT_SET,
    )


def _link(field: str) -> list[dict[str, object]]:
    return [{"title": "Open", "url": f"${{__data.fields.{field}:raw}}", "targetBlank": True}]
