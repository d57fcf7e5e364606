"""The mixin: dashboards and Prometheus rules for Jsonnet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deploy.dashboards.addresses import ADDRESSES, PLACEHOLDERS

_MIXIN: Final = r"""// A monitoring mixin. Made by `python -m deploy.dashboards`: change deploy/dashboards.
local placeholders = [PLACEHOLDERS];
local names = std.join(', ', placeholders);
local without(text, parts) = std.foldl(function(rest, part) std.strReplace(rest, part, ''), parts, text);
local has(text, part) = std.length(std.findSubstr(part, text)) > 0;
// The host of an address is its part up to the path. A client must not choose it by its name.
local host(address) =
  local rest = std.strReplace(std.strReplace(address, 'https://', ''), 'http://', '');
  std.split(std.split(std.split(rest, '/')[0], '?')[0], '#')[0];
local checked(name, address) =
  local wrong(problem) = error "_config.links.%s: '%s': %s" % [name, address, problem];
  local blanks = [part for part in ['"', "'", '\\', '<', '>', ' ', '\t', '\n', '\r'] if has(address, part)];
  if !std.isString(address) then error '_config.links.%s: give the address as text' % name
  else if address == '' then ''
  else if !std.startsWith(address, 'https://') && !std.startsWith(address, 'http://') then
    wrong('begin it with https:// or http://')
  else if host(address) == '' || has(host(address), '$') || has(host(address), '@') then
    wrong('give a host, without placeholders and without a login')
  else if has(without(address, placeholders), '$') then
    wrong('the placeholders are %s; write another dollar as %%24' % names)
  else if blanks != [] then
    wrong('percent-encode blanks, quotes, backslashes and angle brackets: a quote is %22')
  else address;
{
  // The addresses of clients' logs and traces, with placeholders; empty: no links.
  _config+:: {
    links: { LINKS },
  },
  local links = $._config.links,
  local addresses = {
    [name]: checked(name, links[name])
    for name in std.objectFields(links)
  },
  local unknown = std.setDiff(std.objectFields(links), [NAMES]),
  local linked(dashboard) = dashboard {
    templating+: {
      list: [
        if variable.type == 'constant' && std.objectHas(addresses, variable.name)
        then variable { query: addresses[variable.name] }
        else variable
        for variable in dashboard.templating.list
      ],
    },
  },
  assert unknown == [] : '_config.links.%s: unknown; the links are KNOWN' % unknown[0],
  grafanaDashboardFolder:: 'Kafka client telemetry',
  grafanaDashboards+:: {
DASHBOARDS  },
  prometheusAlerts+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-rules.yaml').groups,
  },
  prometheusRules+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-recording-rules.yaml').groups,
  },
}
"""


def mixin(dashboards: Iterable[str]) -> str:
    """Return the mixin of dashboards, which are named."""
    replaced = {
        "PLACEHOLDERS": ", ".join(f"'${{{name}}}'" for name in PLACEHOLDERS),
        "LINKS": ", ".join(f"{name}: ''" for name in ADDRESSES),
        "NAMES": ", ".join(f"'{name}'" for name in sorted(ADDRESSES)),
        "KNOWN": " and ".join(ADDRESSES),
        "DASHBOARDS": "".join(
            f"    'kct-{name}.json': linked(import 'dashboards/{name}.json'),\n" for name in dashboards
        ),
    }
    text = _MIXIN
    for name, value in replaced.items():
        text = text.replace(name, value)
    return text
