"""The generated pages of the reference, each made from the code that it describes."""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import click
import typer
from typer.testing import CliRunner

from deploy.dashboards.prometheus_rules import prometheus_rules
from deploy.dashboards.rollup_alerts import grafana_rules
from deploy.openapi import openapi_document
from plugins._shared.cumulative import Kind
from plugins.prometheus.names import metric_name
from receiver.catalogue import CATALOGUE, MetricKind
from receiver.catalogue.reference import reference as catalogue_reference
from receiver.cli import app

_KINDS: Final = {
    MetricKind.GAUGE: Kind.GAUGE,
    MetricKind.SUM: Kind.COUNTER,
    MetricKind.HISTOGRAM: Kind.HISTOGRAM,
}


def _configuration() -> str:
    return _printed("config", "reference")


def _rollup_settings() -> str:
    return _printed("rollup", "reference")


def _printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    if result.exit_code:
        raise RuntimeError(f"kafka-telemetry {' '.join(arguments)}: {result.output}")
    return result.stdout


def _metrics() -> str:
    return catalogue_reference(CATALOGUE)


def prometheus_names() -> str:
    """Return the page with the Prometheus name of each standard metric."""
    rows = [
        "# Names in Prometheus\n\n",
        "The name that the `prometheus` plugin gives to each standard metric. Every metric begins with\n",
        "`org.apache.kafka.`, and every name in Prometheus with `org_apache_kafka_`.\n\n",
        "| metric | unit | in Prometheus |\n|---|---|---|\n",
    ]
    for metric in CATALOGUE:
        if metric.clients == ("rollup",):  # made by the roll-up, so the plugin never sees it
            continue
        name = metric_name(metric.name, metric.unit or "", _KINDS[metric.kind]).name
        unit = f"`{metric.unit}`" if metric.unit else ""
        short = metric.name.removeprefix("org.apache.kafka.")
        rows.append(f"| `{short}` | {unit} | `{name.removeprefix('org_apache_kafka_')}` |\n")
    return "".join(rows)


def _rest() -> str:
    """Return each endpoint of the OpenAPI document: parameters, body and answers."""
    document = openapi_document()
    parts = [
        "# REST endpoints\n\nMade from the document that a sidecar serves at `GET /openapi.json`.\n"
        "[The REST API](../rest.md) explains roles, conditions and errors.\n"
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"\n## {method.upper()} {path}\n\n{operation.get('summary', '')}.\n")
            if text := operation.get("description"):
                parts.append(f"\n{text.strip()}\n")
            parameters = operation.get("parameters", [])
            if parameters:
                parts.append("\n| parameter | in | type | required | |\n|---|---|---|---|---|\n")
                parts.extend(
                    f"| `{item['name']}` | {item['in']} | {_type(item['schema'])} "
                    f"| {'yes' if item.get('required') else 'no'} | {_cell(item.get('description', ''))} |\n"
                    for item in parameters
                )
            parts.append("\n| status | answer |\n|---|---|\n")
            parts.extend(
                f"| {status} | {_cell(answer['description'])}{_content(answer)} |\n"
                for status, answer in sorted(operation["responses"].items())
            )
    parts.append("\n## Schemas\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f"\n### {name}\n\n{schema.get('description', '').strip()}\n")
        if properties := schema.get("properties"):
            parts.append("\n| field | type | |\n|---|---|---|\n")
            parts.extend(
                f"| `{field}` | {_type(setting)} | {_cell(setting.get('description', ''))} |\n"
                for field, setting in properties.items()
            )
    return "".join(parts)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_type(column) for column in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _content(answer: Mapping[str, Any]) -> str:
    kinds = [
        f"`{kind}`" + (f" {_type(body['schema'])}" if body.get("schema") else "")
        for kind, body in answer.get("content", {}).items()
    ]
    return f" ({', '.join(kinds)})" if kinds else ""


def _command_line() -> str:
    """Return every command with its usage, arguments and options."""
    # Typer's help is laid out for a terminal. The page is made from the same objects.
    root = typer.main.get_command(app)
    parts = [
        "# Command line\n\nEvery command of `kafka-telemetry`. The exit status is 0 for success, 1 for a\n"
        "failure, and 2 for wrong usage or a wrong configuration. Errors are one line on stderr.\n"
    ]
    for path, command in _commands("kafka-telemetry", cast("click.Command", root)):
        parts.append(f"\n## {path}\n")
        text = (command.help or "").replace("\b", "\x00").split("\x00")
        parts.append(f"\n{_cell(text[0])}\n")
        if len(text) > 1:
            example = "\n".join(line.strip() for line in text[1].splitlines() if "kafka-telemetry" in line)
            parts.append(f"\n```sh\n{example}\n```\n")
        rows = [row for param in command.params if (row := _parameter(param))]
        if rows:
            parts.append("\n| option | default | environment | |\n|---|---|---|---|\n")
            parts.extend(rows)
    return "".join(parts)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    subcommands: dict[str, click.Command] = getattr(command, "commands", {})
    if not subcommands or command.params:
        yield path, command
    for name, subcommand in subcommands.items():
        if not subcommand.hidden:
            yield from _commands(f"{path} {name}", subcommand)


def _parameter(parameter: click.Parameter) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name or '').upper()}`"
    default = "" if parameter.default is None or callable(parameter.default) else f"`{parameter.default}`"
    variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
    text = _cell(getattr(parameter, "help", "") or "")
    return f"| {names} | {default} | {f'`{variable}`' if variable else ''} | {text} |\n"


def _alerts() -> str:
    """Return every alert rule with its expression, duration, severity and runbook."""
    parts = [
        "# Alerts\n\nEvery alert rule of the project. [The runbooks](../runbooks.md) say what to do.\n"
        "\n## From the receiver's metrics (Prometheus)\n"
    ]
    for group in cast("list[dict[str, Any]]", prometheus_rules()["groups"]):
        for rule in group["rules"]:
            notes = rule["annotations"]
            parts.append(
                f"\n### {rule['alert']}\n\n{notes['summary']} {notes['description']}\n\n"
                f"Severity {rule['labels']['severity']}, after {rule['for']}.\n\n"
                f"```text\n{rule['expr']}\n```\n"
            )
    parts.append(
        "\n## From the roll-up's findings (Grafana)\n\n| alert | after | severity | |\n|---|---|---|---|\n"
    )
    for group in cast("list[dict[str, Any]]", grafana_rules()["groups"]):
        parts.extend(
            f"| {rule['title']} | {rule['for']} | {rule['labels'].get('severity', '')} "
            f"| {_cell(rule['annotations'].get('summary', ''))} |\n"
            for rule in group["rules"]
        )
    return "".join(parts)


def _tables() -> str:
    """Return the roll-up's schema: the migrations that create its tables and views."""
    schema = importlib.resources.files("spark_streaming") / "postgres" / "schema"
    parts = [
        "# Schema of the roll-up\n\nThe migrations that create the roll-up's tables and views, in order.\n"
        "[The roll-up's tables](../rollup-tables.md) describes the views, which are the interface.\n"
    ]
    parts.extend(
        f"\n## {file.name}\n\n```sql\n{file.read_text('utf-8').strip()}\n```\n"
        for file in sorted(schema.iterdir(), key=lambda one: one.name)
        if file.name.endswith(".sql")
    )
    return "".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


#: The generated pages by their name below reference/.
PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration": _configuration,
    "rollup-settings": _rollup_settings,
    "command-line": _command_line,
    "rest-endpoints": _rest,
    "metrics": _metrics,
    "prometheus-names": prometheus_names,
    "alerts": _alerts,
    "schema": _tables,
}
