// A monitoring mixin. Made by `python -m deploy.dashboards`: change deploy/dashboards.
local placeholders = ['${KAFKA_CLIENT_ID}', '${KAFKA_CLIENT_INSTANCE_ID}', '${KAFKA_GROUP_ID}', '${KAFKA_PRINCIPAL}', '${KAFKA_CLIENT_ADDRESS}'];
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
    links: { logs: '', traces: '' },
  },
  local links = $._config.links,
  local addresses = {
    [name]: checked(name, links[name])
    for name in std.objectFields(links)
  },
  local unknown = std.setDiff(std.objectFields(links), ['logs', 'traces']),
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
  assert unknown == [] : '_config.links.%s: unknown; the links are logs and traces' % unknown[0],
  grafanaDashboardFolder:: 'Kafka client telemetry',
  grafanaDashboards+:: {
    'kct-fleet.json': linked(import 'dashboards/fleet.json'),
    'kct-producers.json': linked(import 'dashboards/producers.json'),
    'kct-consumers.json': linked(import 'dashboards/consumers.json'),
    'kct-one-client.json': linked(import 'dashboards/one-client.json'),
    'kct-topics-and-groups.json': linked(import 'dashboards/topics-and-groups.json'),
    'kct-versions.json': linked(import 'dashboards/versions.json'),
    'kct-receiver.json': linked(import 'dashboards/receiver.json'),
    'kct-traffic.json': linked(import 'dashboards/traffic.json'),
    'kct-prometheus-fleet.json': linked(import 'dashboards/prometheus-fleet.json'),
    'kct-prometheus-producers.json': linked(import 'dashboards/prometheus-producers.json'),
    'kct-prometheus-consumers.json': linked(import 'dashboards/prometheus-consumers.json'),
    'kct-prometheus-one-client.json': linked(import 'dashboards/prometheus-one-client.json'),
    'kct-prometheus-topics-and-groups.json': linked(import 'dashboards/prometheus-topics-and-groups.json'),
  },
  prometheusAlerts+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-rules.yaml').groups,
  },
  prometheusRules+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-recording-rules.yaml').groups,
  },
}
