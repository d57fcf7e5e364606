// A monitoring mixin. Made by `python -m deploy.dashboards`; change deploy/dashboards, not it.
{
  grafanaDashboardFolder:: 'Kafka client telemetry',
  grafanaDashboards+:: {
    'kct-fleet.json': import 'dashboards/fleet.json',
    'kct-producers.json': import 'dashboards/producers.json',
    'kct-consumers.json': import 'dashboards/consumers.json',
    'kct-one-client.json': import 'dashboards/one-client.json',
    'kct-topics-and-groups.json': import 'dashboards/topics-and-groups.json',
    'kct-versions.json': import 'dashboards/versions.json',
    'kct-receiver.json': import 'dashboards/receiver.json',
    'kct-prometheus-fleet.json': import 'dashboards/prometheus-fleet.json',
    'kct-prometheus-producers.json': import 'dashboards/prometheus-producers.json',
    'kct-prometheus-consumers.json': import 'dashboards/prometheus-consumers.json',
    'kct-prometheus-one-client.json': import 'dashboards/prometheus-one-client.json',
    'kct-prometheus-topics-and-groups.json': import 'dashboards/prometheus-topics-and-groups.json',
  },
  prometheusAlerts+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-rules.yaml').groups,
  },
  prometheusRules+:: {
    groups+: std.parseYaml(importstr 'alerts/prometheus-recording-rules.yaml').groups,
  },
}
