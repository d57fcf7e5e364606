"""What every dashboard has, and what none may do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.dashboards.sql import key
from deploy.dashboards.units import unit_of
from receiver.catalogue import CATALOGUE
from tests.testbed.dashboard_queries import CHART, DASHBOARDS

#: The documented interface: what Grafana's role may read.
READABLE = re.compile(
    r"(metric|metric_series|topic|fleet|spread|histogram)_1[mhd]|client_1[mh]|client|metric_series|feed|"
    r"finding|catalogue|software|ledger|progress"
)
PROVISIONED = Path(__file__).parents[3] / "examples" / "docker-compose" / "grafana" / "datasources.yaml"
NAMES = tuple(DASHBOARDS)
UIDS = {dashboard["uid"] for dashboard in DASHBOARDS.values()}


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARDS[name]["panels"] if panel["type"] != "row"]


def queries(name: str) -> list[str]:
    found = [
        variable["query"]
        for variable in DASHBOARDS[name]["templating"]["list"]
        if variable["type"] == "query" and isinstance(variable["query"], str)
    ]
    found += [mark["target"]["rawSql"] for mark in DASHBOARDS[name].get("annotations", {}).get("list", ())]
    return found + [
        target["rawSql"]
        for panel in panels(name)
        for target in panel.get("targets", ())
        if "rawSql" in target
    ]


def asked_by(panel: dict[str, Any]) -> str:
    """Return a panel's queries, in SQL or PromQL."""
    return str([target.get("rawSql", target.get("expr")) for target in panel.get("targets", ())])


def test_all_of_them_are_there() -> None:
    assert set(NAMES) == {
        "consumers", "fleet", "one-client", "producers", "receiver", "topics-and-groups", "traffic",
        "versions",
        "prometheus-fleet", "prometheus-producers", "prometheus-consumers", "prometheus-one-client",
        "prometheus-topics-and-groups",
    }  # fmt: skip
    assert len(UIDS) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_a_description_and_stable_ids(name: str) -> None:
    dashboard = DASHBOARDS[name]

    assert {"uid", "title", "description", "tags", "schemaVersion", "time", "refresh"} <= dashboard.keys()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert ids == list(range(1, len(ids) + 1))
    (link,) = dashboard["links"]
    assert link["keepTime"]
    assert link["includeVars"]


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_a_title_a_description_and_a_unit(name: str) -> None:
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"]
        assert panel["type"] == "text" or panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["type"] == "text" or panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_reduce_numeric_fields_and_stacks_leave_out_metrics_that_are_not_sent(name: str) -> None:
    for panel in panels(name):
        if panel["title"] == "Status":
            assert panel["options"]["reduceOptions"]["fields"] == "/^banner$/"
        elif panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["fields"] == "", panel["title"]
        elif panel["type"] == "timeseries":
            override, *band = panel["fieldConfig"]["overrides"]
            if band:
                lower, upper = (item["matcher"]["options"] for item in band)
                (below,) = (
                    property_["value"]
                    for property_ in band[1]["properties"]
                    if property_["id"] == "custom.fillBelowTo"
                )
                assert below == lower
                # The names of lines that a query has.
                assert {lower, upper} <= set(re.findall(r"\d+ % of peers below", str(panel["targets"])))
            # Lines are sorted by value, and only lines that add up are filled.
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["sortBy"]) == ("table", "Max")
            # Small values of this one are a problem.
            assert legend["sortDesc"] == ("1 % of clients below" not in str(panel["targets"])), panel["title"]
            custom = panel["fieldConfig"]["defaults"]["custom"]
            assert (custom["fillOpacity"] == 0) == (custom["stacking"]["mode"] == "none"), panel["title"]
            assert override["matcher"]["options"] == "/^not sent by /"
            shown = {property_["id"]: property_["value"] for property_ in override["properties"]}
            assert shown["custom.stacking"]["mode"] == "none", panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_panels_neither_overlap_nor_leave_the_grid(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_queries_read_the_documented_interface_alone(name: str) -> None:
    for sql in queries(name):
        # Not the name of a metric such as kafka.client.telemetry.clients.
        tables = re.findall(r"(?<!\.)\btelemetry\.(\w+)", sql)
        assert tables, sql
        assert [table for table in tables if not READABLE.fullmatch(table)] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_users_choose_is_quoted(name: str) -> None:
    variables = {variable["name"] for variable in DASHBOARDS[name]["templating"]["list"]}
    for sql in queries(name):
        for variable in re.findall(r"\$\{(\w+)[^}]*\}|\$([a-z]\w*)", sql):
            assert "".join(variable) in variables
        assert re.findall(r"\$\{(?!\w+:sqlstring\})|\$[a-z]", sql) == []


@pytest.mark.parametrize("name", NAMES)
def test_of_several_data_sources_the_one_of_the_alert_rules_is_chosen(name: str) -> None:
    uids = {"postgres": "kafka-client-telemetry-postgres", "prometheus": "kafka-client-telemetry-prometheus"}
    sources = [
        dashboard for dashboard in DASHBOARDS[name]["templating"]["list"] if dashboard["type"] == "datasource"
    ]
    assert sources
    for variable in sources:
        assert variable["current"]["value"] == uids[variable["name"]]
    rules = yaml.safe_load((CHART / "alerts" / "grafana-rules.yaml").read_text())
    assert {
        query["datasourceUid"]
        for group in rules["groups"]
        for rule in group["rules"]
        for query in rule["data"]
    } == {uids["postgres"], "__expr__"}
    provisioned = yaml.safe_load(PROVISIONED.read_text())["datasources"]
    assert {item["uid"] for item in provisioned} == set(uids.values())


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_existing_dashboards_and_escape_the_texts_of_clients(name: str) -> None:
    text = str(DASHBOARDS[name])
    assert set(re.findall(r"/d/([\w-]+)", text)) <= UIDS
    raw = re.findall(r"\$\{__data\.fields\.\w+(?!\w|:percentencode)", text)
    # The query makes it of the names of dashboards and of hexadecimal digits alone.
    # And of an address that the operator sets, with texts of clients as hexadecimal digits or as
    # words that need no quotes.
    assert set(raw) <= {
        "${__data.fields.subject_key", "${__data.fields.member_key", "${__data.fields.what_key",
            "${__data.fields.url",
    }  # fmt: skip


def test_the_path_of_a_findings_subject_has_no_text_of_a_client() -> None:
    paths = [
        path
        for name in NAMES
        for sql in queries(name)
        for path in re.findall(r"'kct-one-client[^;]*?END AS (?:subject|member)_key", sql)
    ]
    assert paths
    for path in paths:
        made = path
        for column in ("client_id", "group_id", "client_software_name"):
            made = made.replace(key(column), "KEY")
        assert re.findall(r"\|\| (?!KEY)", made) == []


def test_client_ids_in_tables_lead_to_the_client() -> None:
    for name in NAMES:
        for panel in panels(name):
            if panel["type"] == "table" and any(
                "client_id," in target.get("rawSql", "").partition("\nFROM")[0] for target in panel["targets"]
            ):
                links = str(panel["fieldConfig"]["overrides"])
                to_client = "var-client=${__data.fields.client_id_key:percentencode}"
                others = ("${__data.fields.subject_key:raw}", "${__data.fields.what_key:raw}")
                assert any(link in links for link in (to_client, *others)), panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_variables_of_postgresql_have_keys_as_values(name: str) -> None:
    """No query contains a client's text, because Grafana expands macros inside quotes too."""
    for variable in DASHBOARDS[name]["templating"]["list"]:
        if variable["type"] == "query" and isinstance(variable["query"], str):
            text = re.match(r"SELECT coalesce\((\w+), '\(none\)'\) AS \"__text\", ", variable["query"])
            assert text, variable["name"]
            assert variable["query"][text.end() :].startswith(f'{key(text[1])} AS "__value"\n')


@pytest.mark.parametrize("name", NAMES)
def test_links_take_the_key_from_a_hidden_column_of_their_own_query(name: str) -> None:
    for panel in panels(name):
        for column in set(re.findall(r"\$\{__data\.fields\.(\w+)", str(panel))):
            text = column.removesuffix("_key")
            sql = panel["targets"][0].get("rawSql")
            if sql is None:
                # Variables of Prometheus have texts as values, which Grafana quotes.
                continue
            if column == "what_key":
                assert "'hex'), '(..)', '%\\1', 'g')" in sql
            elif text not in {"subject", "member"}:
                assert f"{key(text)} AS {column}" in sql, panel["title"]
            (shown,) = (
                {property_["id"]: property_["value"] for property_ in override["properties"]}
                for override in panel["fieldConfig"]["overrides"]
                if override["matcher"]["options"] == column
            )
            assert shown["custom.hidden"] is True


@pytest.mark.parametrize("metric", tuple(CATALOGUE), ids=lambda metric: metric.name)
def test_every_unit_of_the_catalogue_can_be_drawn(metric: Any) -> None:
    unit, factor = unit_of(metric)
    assert unit
    assert factor > 0


@pytest.mark.parametrize("name", NAMES)
def test_titles_fit_their_panels(name: str) -> None:
    """On a window of 1280 pixels, where a letter of a title is about seven pixels wide."""
    for panel in panels(name):
        room = panel["gridPos"]["w"] * 1280 / 24 - 30
        assert 7 * len(panel["title"]) <= room, panel["title"]


def test_an_empty_list_of_problems_is_no_lack_of_data() -> None:
    lists = {"Findings", "Old and known-bad versions", "Open findings by kind", "Silent clients"}
    found = {
        panel["title"]: panel["fieldConfig"]["defaults"]["noValue"]
        for name in NAMES
        for panel in panels(name)
        if panel["title"] in lists and panel["type"] != "stat"
    }
    # And no promise: a query that failed shows the same words.
    assert found == dict.fromkeys(lists, "nothing found, or no answer: see Status")


@pytest.mark.parametrize("name", NAMES)
def test_a_database_without_an_answer_is_red(name: str) -> None:
    for panel in panels(name):
        if panel["title"] == "Status":
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["color"] == {"mode": "fixed", "fixedColor": "red"}
            assert all(mapping["type"] == "regex" for mapping in defaults["mappings"])


@pytest.mark.parametrize("name", NAMES)
def test_a_heatmap_has_one_meaning_in_both_themes(name: str) -> None:
    """Grafana inverts every scheme but these two in one of its themes."""
    for panel in panels(name):
        if panel["type"] == "heatmap":
            assert panel["options"]["color"]["scheme"] in {"RdYlGn", "Spectral"}


def test_no_table_orders_versions_as_texts() -> None:
    for name in NAMES:
        for panel in panels(name):
            if panel["type"] == "table":
                assert "Version" not in str(panel["options"].get("sortBy")), panel["title"]
            for target in panel.get("targets", ()):
                for ordered in re.findall(r"ORDER BY [^\n]*", target.get("rawSql", "")):
                    # Its numbers may.
                    text = ordered.replace("substring(client_software_version", "")
                    assert "client_software_version" not in text, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_rebalances_of_a_group_are_those_of_one_client_id(name: str) -> None:
    """Each member counts its group's rebalances, so a sum counts each many times."""
    for panel in panels(name):
        asked = asked_by(panel)
        is_about = re.search(r"rebalance[._]total|client_rebalances:", asked)
        by_group = panel["title"] in {"Groups", "Rebalances by group", "Rebalances an hour"}
        if is_about and (by_group or re.search(r"rebalances? by group", panel["title"], re.IGNORECASE)):
            assert "f the client id with the most" in panel["description"], panel["title"]
            if name.startswith("prometheus-") and "client_rebalances:" not in asked:
                assert "max by (group_id) (sum by (group_id, client_id) (rate(" in asked, panel["title"]
            elif not name.startswith("prometheus-"):
                assert re.search(r"max\((added|value)\) AS", asked), panel["title"]


#: Latency of consumers' requests, by metric, series, and column.
WAITING = re.compile(
    r"consumer[._](?:fetch[._]manager[._]fetch|node[._]request)[._]latency[._](?:avg|max)|request_latency_ms"
)


@pytest.mark.parametrize("name", NAMES)
def test_the_latency_of_consumers_says_what_it_contains_and_ranks_nobody(name: str) -> None:
    for panel in panels(name):
        asked = asked_by(panel)
        # The signs of consumers are no latency that is shown, and these tables list all metrics.
        shown = re.sub(
            r"\{__name__=~[^}]*creation_total[^}]*\}|metric IN \([^)]*creation\.total[^)]*\)", "", asked
        )
        if not WAITING.search(shown) or panel["title"].startswith(("Which software", "Every metric")):
            continue
        assert "wait for data" in panel["description"], panel["title"]
        # No list of the worst.
        assert panel["type"] != "table" or "LIMIT 10\n" not in asked, panel["title"]
        assert "sort_desc(topk" not in asked, panel["title"]
        assert "ORDER BY latency" not in asked, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_are_of_many_clients(name: str) -> None:
    """Quartiles of peers apart, which a band shows."""
    for panel in panels(name):
        asked = asked_by(panel)
        quantiles = re.findall(r"(?<!histogram_)quantile\(", asked)
        if quantiles or "clients below" in asked:
            gates = re.findall(r"and on \(\) \(count\(.*?\) >= 20\)|count\(\*\) >= 20", asked)
            assert gates, panel["title"]
            assert not quantiles or len(gates) == len(quantiles), panel["title"]
            assert "Quantiles of at least 20 clients" in panel["description"], panel["title"]


#: The metric, its series in Prometheus, and the recorded ones.
LAG = re.compile(r"records[._]lag(?:[._]max|:max)")


@pytest.mark.parametrize("name", NAMES)
def test_lag_has_one_threshold_wherever_it_is_shown(name: str) -> None:
    for panel in panels(name):
        asked = asked_by(panel)
        if not LAG.search(asked) or (panel["type"] == "stat" and re.search(r"count\(", asked)):
            continue
        if panel["type"] == "table":
            shown = [
                {property_["id"]: property_["value"] for property_ in override["properties"]}
                for override in panel["fieldConfig"]["overrides"]
            ]
            steps = [item["thresholds"]["steps"] for item in shown if "thresholds" in item]
            # Another column of these tables has a text for each metric.
            assert steps or panel["title"].startswith(("Which software", "Every metric")), panel["title"]
        else:
            steps = [panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        for found in steps:
            assert [step["value"] for step in found] == [None, 10_000, 100_000], panel["title"]


@pytest.mark.parametrize("name", ["fleet", "prometheus-fleet"])
def test_a_fleet_counts_the_groups_that_are_behind(name: str) -> None:
    (panel,) = (panel for panel in panels(name) if panel["title"] == "Groups behind")
    assert ">= 10000" in str(panel["targets"])
    assert [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]] == [None, 1]


def test_a_share_has_an_axis_to_100_percent() -> None:
    (panel,) = (
        item for item in panels("receiver") if item["fieldConfig"]["defaults"]["unit"] == "percentunit"
    )
    assert panel["fieldConfig"]["defaults"]["custom"]["axisSoftMax"] == 1


def test_totals_of_one_client_software_say_so() -> None:
    titles = {panel["title"] for name in ("producers", "consumers") for panel in panels(name)}
    assert {"Records sent, Java only", "Records failed, Java only", "Largest lag, Java only"} <= titles


@pytest.mark.parametrize("name", [name for name in NAMES if "feed" in str(DASHBOARDS[name])])
def test_findings_and_new_versions_are_marked_on_all_lines(name: str) -> None:
    marks = DASHBOARDS[name]["annotations"]["list"]
    assert [(mark["name"], mark["enable"]) for mark in marks] == [("Findings", True), ("Versions", True)]
    # They are those of what is chosen, and of no other client.
    choices = {variable["name"] for variable in DASHBOARDS[name]["templating"]["list"]}
    for choice in choices & {"cluster", "software", "principal", "group", "client_id", "client"}:
        assert all(f"${{{choice}:sqlstring}}" in mark["target"]["rawSql"] for mark in marks), choice
    for mark in marks:
        assert re.match(r"SELECT \w+ AS time, .* AS text, .* AS tags", mark["target"]["rawSql"], re.DOTALL)


def test_the_fleet_has_the_worst_ten_of_each_problem() -> None:
    tables = [
        panel
        for panel in panels("fleet")
        if "LIMIT 10" in str(panel.get("targets")) and panel["gridPos"]["w"] == 8
    ]
    assert [panel["title"] for panel in tables] == [
        "Lag", "Produce throttling", "Fetch throttling", "Produce latency", "Failed records", "Rebalances",
    ]  # fmt: skip
    for panel in tables:
        assert "/d/kct-one-client?${__url_time_range}" in str(panel["fieldConfig"]["overrides"])
