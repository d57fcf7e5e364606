"""Expands variables and macros in a panel's SQL as Grafana does.

Nothing here asks a database. The rules are those of Grafana's SQL data sources
(``SqlDatasource.ts``, ``templateSrv``) and of its PostgreSQL one (``macros.go``), without what the
project's dashboards don't use: fill modes but NULL, which makes holes of steps without a row and no
SQL; TimescaleDB, epoch columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

#: From rangeUtil.roundInterval: an interval below the first number becomes the second one, in
#: seconds.
_ROUNDED = (
    (1.5, 1), (3.5, 2), (7.5, 5), (12.5, 10), (17.5, 15), (25, 20), (45, 30), (90, 60), (210, 120),
    (450, 300), (750, 600), (1050, 900), (1500, 1200), (2700, 1800), (5400, 3600), (9000, 7200),
    (16200, 10800), (32400, 21600), (86400, 43200), (604800, 86400), (1814400, 604800),
)  # fmt: skip
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+)([smhdw])")
_RELATIVE = re.compile(rf"now(?:-{_SPAN.pattern})?")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+?)(?::(\w+))?\]\]")
_MACRO = re.compile(r"\$([_a-zA-Z0-9]+)\(([^)]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """What the time picker is set to.

    Attributes:
        start: Its begin, with a time zone.
        end: Its end.
    """

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A dashboard's variable and what is chosen.

    Attributes:
        name: Its name in ``$name``.
        values: What is chosen; with All, every option.
        texts: What people see of each value, where it differs.
        several: Whether it takes several values or All, so that Grafana quotes it.
        all_value: Taken as it is when All is chosen, if the variable has one of its own.
        all_chosen: Whether All is chosen.
    """

    name: str
    values: tuple[str, ...]
    texts: tuple[str, ...] = ()
    several: bool = False
    all_value: str | None = None
    all_chosen: bool = False

    def as_sql(self, written_as: str | None) -> str:
        """The text in the variable's place.

        Args:
            written_as: The format in ``${name:format}``, None without.

        Raises:
            ValueError: The format is one that the project's dashboards don't use.
        """
        if self.all_chosen and self.all_value is not None:
            return self.all_value
        escaped = [value.replace("'", "''") for value in self.values]
        match written_as:
            case "raw":
                return ",".join(self.values)
            case "text":
                return " + ".join(self.texts or self.values)
            case "sqlstring":
                return ",".join(f"'{value}'" for value in escaped)
            case None if self.several or len(self.values) > 1:
                return ",".join(f"'{value}'" for value in escaped)
            case None:
                return "".join(escaped)
            case _:
                raise ValueError(
                    f"${{{self.name}:{written_as}}}: write it as ${self.name}, :raw, :sqlstring or :text"
                )


def seconds_of(span: str) -> int:
    """The length of a span such as ``5m``, in seconds.

    Raises:
        ValueError: It isn't one.
    """
    found = _SPAN.fullmatch(span)
    if found is None:
        raise ValueError(f"{span!r} is no span of time: write it like 30s, 5m, 6h, 7d or 1w")
    return int(found[1]) * _UNITS_S[found[2]]


def time_range(begin: str, end: str, *, now: datetime) -> TimeRange:
    """A dashboard's range such as ``now-6h`` to ``now``.

    Raises:
        ValueError: One of them isn't ``now`` or ``now-SPAN``.
    """

    def at(text: str) -> datetime:
        found = _RELATIVE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no relative time: write it like now or now-6h")
        return now - timedelta(seconds=seconds_of(text.removeprefix("now-")) if found[1] else 0)

    return TimeRange(start=at(begin), end=at(end))


def interval_s(window: TimeRange, *, points: int, minimum: str = "1m") -> int:
    """What ``$__interval`` is, in seconds, for a panel that has room for ``points``.

    Args:
        window: The time range.
        points: The panel's width in pixels, or its ``maxDataPoints``.
        minimum: The panel's ``interval``, or else the data source's, a minute unless somebody says
            else.
    """
    wanted = window.seconds / points
    rounded = next((small for below, small in _ROUNDED if wanted < below), 2_592_000)
    return max(rounded, seconds_of(minimum))


def span_of(seconds: int) -> str:
    """A number of seconds as Grafana writes ``$__interval``: ``30s``, ``5m``, ``1h``, ``1d``."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def built_in(window: TimeRange, interval: int) -> dict[str, str]:
    """Grafana's own variables by name, such as ``__from``."""
    start_ms, end_ms = (round(at.timestamp() * 1000) for at in (window.start, window.end))
    seconds = round(window.seconds)
    return {
        "__from": str(start_ms),
        "__to": str(end_ms),
        "__interval": span_of(interval),
        "__interval_ms": str(interval * 1000),
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
        "__range_ms": str(seconds * 1000),
        # As for a data source that is scraped every 15 seconds, Grafana's default.
        "__rate_interval": f"{max(interval + 15, 60)}s",
    }


def substitute(text: str, values: Callable[[str, str | None], str | None]) -> str:
    """Replace ``$name``, ``${name:format}`` and ``[[name]]`` where ``values`` knows it.

    Args:
        text: A query, a title, a link.
        values: From a name and a format to what comes in its place; None leaves it as it is, as
            Grafana does.
    """

    def replace(found: re.Match[str]) -> str:
        value = values(found[1] or found[2] or found[4], found[3] or found[5])
        return found[0] if value is None else value

    return _VARIABLE.sub(replace, text)


def expand(sql: str, *, window: TimeRange, interval: int, variables: Iterable[Variable] = ()) -> str:
    """The SQL that Grafana would send.

    Args:
        sql: A target's ``rawSql``, or a variable's query.
        window: The time range.
        interval: ``$__interval`` in seconds, see :func:`interval_s`.
        variables: The dashboard's.

    Raises:
        ValueError: It names a macro or variable that is none, or a macro lacks an argument.
    """
    chosen = {variable.name: variable for variable in variables}
    own = built_in(window, interval)

    def value(name: str, written_as: str | None) -> str | None:
        if name in chosen:
            return chosen[name].as_sql(written_as)
        if name in own:
            return own[name]
        if name.startswith("__") or name.isdecimal():
            return None
        raise ValueError(
            f"${name} is no variable of the dashboard: it has {', '.join(sorted(chosen)) or 'none'}"
        )

    def macro(found: re.Match[str]) -> str:
        # Before a comma Grafana takes the one for the other, as queries of before 5.3 want it.
        aliased = found[1] == "__timeGroup" and found.string[found.end() :].startswith(",")
        return _macro("__timeGroupAlias" if aliased else found[1], found[2], window)

    return _MACRO.sub(macro, substitute(sql, value))


def _macro(name: str, text: str, window: TimeRange) -> str:
    arguments = [argument.strip(" ") for argument in text.split(",")]
    start, end = (f"'{_rfc3339(at)}'" for at in (window.start, window.end))
    plain: Mapping[str, Callable[[], str]] = {
        "__time": lambda: f'{arguments[0]} AS "time"',
        "__timeEpoch": lambda: f'extract(epoch from {arguments[0]}) as "time"',
        "__timeFilter": lambda: f"{arguments[0]} BETWEEN {start} AND {end}",
        "__timeFrom": lambda: start,
        "__timeTo": lambda: end,
        "__timeGroup": lambda: _time_group(arguments),
        "__timeGroupAlias": lambda: f'{_time_group(arguments)} AS "time"',
    }
    if name not in plain:
        raise ValueError(f"${name}() is no macro of Grafana's that is known here: {', '.join(sorted(plain))}")
    return plain[name]()


def _time_group(arguments: list[str]) -> str:
    if len(arguments) == 3 and arguments[2] == "NULL":
        arguments = arguments[:2]
    if len(arguments) != 2:
        raise ValueError(f"$__timeGroup({', '.join(arguments)}): it takes a column and an interval")
    column, seconds = arguments[0], seconds_of(arguments[1].strip("'"))
    return f"floor(extract(epoch from {column})/{seconds})*{seconds}"


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
