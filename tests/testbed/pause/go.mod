module kafka-client-telemetry/testbed/pause

go 1.26.0
