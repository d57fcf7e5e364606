"""Draws dashboards in Chromium with Grafana's components and queries on real databases.

``python -m tests.dashboards.draw --postgres URL [--prometheus URL] --out docs/images`` writes them
all.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.dashboards import results
from tests.testbed import grafana_sql, parts
from tests.testbed.grafana_sql import TimeRange, Variable

DASHBOARDS = Path(__file__).parents[2] / "deploy" / "helm" / "kafka-client-telemetry" / "dashboards"
_WIDTH = 1600
_TIMEOUT_S = 600.0
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)")
_FILLED = re.compile(r"\$__timeGroup(?:Alias)?\([^)]*,\s*NULL\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where panels send queries, and for which time range.

    Attributes:
        postgres: With the roll-up's tables.
        prometheus: What scrapes sidecars; None: panels that ask it say so.
        chosen: Values by variable, where the first option isn't what is wanted.
        now: The end of ``now-6h`` to ``now``.
        span: The time range, for example ``30m``; by default the dashboard's.
    """

    postgres: psycopg.Connection[tuple[Any, ...]]
    prometheus: httpx.Client | None
    chosen: Mapping[str, Sequence[str]]
    now: datetime
    span: str | None = None


def scene(dashboard: dict[str, Any], sources: Sources, *, theme: str) -> dict[str, Any]:
    """Return a scene for ``panels/scene.ts``: dashboard, variables, query results.

    Args:
        dashboard: Its JSON.
        sources: What its queries ask.
        theme: ``dark`` or ``light``.
    """
    span = sources.span or dashboard["time"]["from"].removeprefix("now-")
    window = grafana_sql.time_range(f"now-{span}", "now", now=sources.now)
    models = dashboard.get("templating", {}).get("list", [])
    variables: list[Variable] = []
    for model in _in_order_of_need(models):
        variables.append(_choose(model, variables, window, sources))
    chosen = {variable.name: variable for variable in variables}
    row = [
        {
            "label": model.get("label") or model["name"],
            "text": "All" if chosen[model["name"]].all_chosen else " + ".join(chosen[model["name"]].texts),
        }
        for model in models
        if not model.get("hide")
    ]
    found = {}
    for number, panel in enumerate(dashboard["panels"], start=1):
        panel.setdefault("id", number)
        if panel.get("repeat"):
            raise ValueError(f"panel {panel['title']!r} is repeated by {panel['repeat']}: that is not drawn")
        if panel["type"] != "row":
            found[str(panel["id"])] = _result(panel, variables, window, sources)
    texts = {variable.name: ", ".join(variable.texts) for variable in variables}
    return {
        "dashboard": dashboard,
        "theme": theme,
        "width": _WIDTH,
        "range": {
            "from": round(window.start.timestamp() * 1000),
            "to": round(window.end.timestamp() * 1000),
            "text": f"Last {span}, to {sources.now:%Y-%m-%d %H:%M}",
        },
        "variables": row,
        "values": texts,
        "results": found,
    }


def _in_order_of_need(models: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the variables, each after those that its query uses, like Grafana."""
    waiting = {model["name"]: model for model in models}
    needs: dict[str, set[str]] = {name: set() for name in waiting}
    for name, model in waiting.items():

        def note(needed: str, _written_as: str | None, name: str = name) -> None:
            needs[name].add(needed)

        grafana_sql.substitute(json.dumps(model.get("query", "")), note)
    ordered = []
    while waiting:
        ready = [name for name in waiting if not needs[name] & (waiting.keys() - {name})]
        if not ready:
            raise ValueError(f"variables need each other: {', '.join(waiting)}")
        ordered += [waiting.pop(name) for name in ready]
    return ordered


def _choose(
    model: Mapping[str, Any], before: Sequence[Variable], window: TimeRange, sources: Sources
) -> Variable:
    options = _options(model, before, window, sources)
    current = model.get("current", {}).get("value", [])
    wanted = sources.chosen.get(model["name"]) or ([current] if isinstance(current, str) else current)
    found = [(text, value) for text, value in options if {text, value} & set(wanted)]
    every = bool(model.get("includeAll")) and not found
    found = options if every else found or options[:1]
    return Variable(
        name=model["name"],
        texts=tuple(text for text, _ in found),
        values=tuple(value for _, value in found),
        several=bool(model.get("multi") or model.get("includeAll")),
        all_value=model.get("allValue") or None,
        all_chosen=every,
    )


def _options(
    model: Mapping[str, Any], before: Sequence[Variable], window: TimeRange, sources: Sources
) -> list[tuple[str, str]]:
    """Return the texts and values of a variable's options."""
    query = model.get("query", "")
    match model["type"]:
        case "datasource":
            return _same(["PostgreSQL" if "postgres" in query else "Prometheus"])
        case "custom" | "interval":
            return _same([option.rpartition(" : ")[2].strip() for option in query.split(",")])
        case "constant" | "textbox":
            return _same([query])
        case "query":
            text = query if isinstance(query, str) else query["query"]
            if model["datasource"]["type"] == "prometheus":
                return _same(_label_values(text, before, window, sources))
            sql = grafana_sql.expand(text, window=window, interval=60, variables=before)
            frame = results.postgres_frame(sources.postgres, sql, ref_id="A", time_series=False)
            columns = {
                field["name"]: values
                for field, values in zip(frame["schema"]["fields"], frame["data"]["values"], strict=True)
            }
            if not columns:
                return []
            return list(zip(columns["__text"], columns["__value"], strict=True))
        case kind:
            raise ValueError(f"variable {model['name']}: type {kind!r} is not known here")


def _same(options: Sequence[str]) -> list[tuple[str, str]]:
    return [(option, option) for option in options]


def _label_values(text: str, before: Sequence[Variable], window: TimeRange, sources: Sources) -> list[str]:
    if sources.prometheus is None:
        return []
    found = _LABEL_VALUES.fullmatch(_replaced(text, before, window, 60).strip())
    if found is None:
        raise ValueError(f"{text!r}: of Prometheus, a variable asks label_values(metric, label)")
    parameters = {"match[]": found[1]} if found[1] else {}
    response = sources.prometheus.get(f"/api/v1/label/{found[2]}/values", params=parameters)
    response.raise_for_status()
    return list(response.json()["data"])


def _replaced(text: str, variables: Sequence[Variable], window: TimeRange, interval: int) -> str:
    own = grafana_sql.built_in(window, interval)

    def value(name: str, _written_as: str | None) -> str | None:
        for variable in variables:
            if variable.name == name:
                if variable.all_chosen and variable.all_value is not None:
                    return variable.all_value
                if not variable.several:
                    return "".join(variable.values)
                # Grafana's format of several values for =~.
                return (
                    "(" + "|".join(re.escape(value).replace("\\", "\\\\") for value in variable.values) + ")"
                )
        return own.get(name)

    return grafana_sql.substitute(text, value)


def _result(
    panel: Mapping[str, Any], variables: Sequence[Variable], window: TimeRange, sources: Sources
) -> dict[str, Any]:
    frames: list[results.Frame] = []
    points = panel.get("maxDataPoints") or _WIDTH * panel["gridPos"]["w"] // 24
    minimum = _replaced(panel.get("interval") or "", variables, window, 60)
    for target in panel.get("targets", []):
        try:
            if target["datasource"]["type"] == "prometheus":
                if sources.prometheus is None:
                    raise results.QueryRefusedError("no Prometheus was given")
                step = grafana_sql.interval_s(
                    window, points=points, minimum=target.get("interval") or minimum or "15s"
                )
                expression = _replaced(target["expr"], variables, window, step)
                frames += results.prometheus_frames(
                    sources.prometheus,
                    target,
                    expression,
                    window=window,
                    step_s=step,
                    of_several=len(panel["targets"]) > 1,
                )
            else:
                step = grafana_sql.interval_s(window, points=points, minimum=minimum or "1m")
                sql = grafana_sql.expand(target["rawSql"], window=window, interval=step, variables=variables)
                frames.append(
                    results.postgres_frame(
                        sources.postgres,
                        sql,
                        ref_id=target["refId"],
                        time_series=target["format"] == "time_series",
                        fill=(window, step) if _FILLED.search(target["rawSql"]) else None,
                    )
                )
        except results.QueryRefusedError as error:
            return {"frames": frames, "error": f"{target['refId']}: {error}"}
    return {"frames": frames, "error": None}


def draw(scenes: Mapping[Path, Mapping[str, Any]]) -> None:
    """Write a PNG file for each scene.

    Args:
        scenes: By the picture's path.

    Raises:
        NotSetUpError: The testbed's part ``grafana-ui`` is not built, or there is no Chromium.
        CalledProcessError: A dashboard could not be drawn; which one and why is on stderr.
    """
    page = parts.GRAFANA_UI.require()
    browser = shutil.which("chromium")
    if browser is None:
        raise parts.NotSetUpError("the testbed lacks Chromium: run `make pictures`")
    with tempfile.TemporaryDirectory() as name:
        words: list[str | Path] = ["node", page / "shoot.mjs", browser, page]
        for picture, content in scenes.items():
            file = Path(name) / f"{picture.stem}.json"
            file.write_text(json.dumps(content))
            words += [file, picture.resolve()]
        subprocess.run(words, check=True, timeout=_TIMEOUT_S)


def main(words: Sequence[str]) -> int:
    """Run the command line ``words``; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.dashboards.draw", description=__doc__)
    parser.add_argument("--postgres", required=True, help="postgresql://... with the roll-up's tables")
    parser.add_argument("--prometheus", help="http://... that scrapes sidecars")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--at", type=datetime.fromisoformat, help="what `now` is (default: now)")
    parser.add_argument(
        "--last", metavar="SPAN", help="the time range, such as 30m (default: the dashboard's)"
    )
    parser.add_argument("--theme", choices=["dark", "light"], default="dark")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="choose a variable")
    parser.add_argument("--only", action="append", help="a dashboard's file name without .json")
    arguments = parser.parse_args(words)
    chosen: dict[str, list[str]] = {}
    for pair in arguments.set:
        name, _, value = pair.partition("=")
        chosen.setdefault(name, []).append(value)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        connection = stack.enter_context(results.connect(arguments.postgres))
        prometheus = (
            stack.enter_context(httpx.Client(base_url=arguments.prometheus, timeout=30, trust_env=False))
            if arguments.prometheus
            else None
        )
        sources = Sources(
            postgres=connection,
            prometheus=prometheus,
            chosen=chosen,
            span=arguments.last,
            now=(arguments.at or datetime.now(UTC)).astimezone(UTC),
        )
        files = [
            file
            for file in sorted(DASHBOARDS.glob("*.json"))
            if file.stem in (arguments.only or [file.stem])
            # Without a Prometheus these dashboards are empty, so an old picture stays.
            and (
                prometheus is not None
                or not file.stem.startswith(("receiver", "prometheus-"))
                or arguments.only
            )
        ]
        scenes = {
            arguments.out / f"{file.stem}.png": scene(
                json.loads(file.read_text()), sources, theme=arguments.theme
            )
            for file in files
        }
    for picture, content in scenes.items():
        for key, result in content["results"].items():
            if result["error"]:
                sys.stderr.write(f"{picture.stem}, panel {key}: {result['error']}\n")
    try:
        draw(scenes)
    except parts.NotSetUpError as error:
        sys.stderr.write(f"draw: {error}\n")
        return 1
    except subprocess.CalledProcessError:
        return 1
    for picture in scenes:
        sys.stdout.write(f"{picture}: {picture.stat().st_size / 1000:.0f} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
