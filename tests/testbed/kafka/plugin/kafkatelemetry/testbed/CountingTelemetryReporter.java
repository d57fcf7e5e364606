package kafkatelemetry.testbed;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * The least that makes a broker take client telemetry (KIP-714): it counts pushes and exports nothing.
 *
 * <p>With the broker property {@code testbed.telemetry.log=true} every push is one JSON line on standard output.
 */
public final class CountingTelemetryReporter
    implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
  private static final String LOG_PROPERTY = "testbed.telemetry.log";

  private final AtomicLong pushes = new AtomicLong();
  private boolean log;

  @Override
  public void configure(Map<String, ?> configs) {
    log = Boolean.parseBoolean(String.valueOf(configs.get(LOG_PROPERTY)));
  }

  @Override
  public ClientTelemetryExporter clientTelemetryExporter() {
    return this;
  }

  @Override
  public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
    long count = pushes.incrementAndGet();
    if (log) {
      // Every value is a number, a boolean, an id or a fixed word: nothing needs escaping.
      System.out.printf(
          "{\"telemetry_push\":%d,\"client_instance_id\":\"%s\",\"terminating\":%b,\"content_type\":\"%s\","
              + "\"bytes\":%d,\"push_interval_ms\":%d}%n",
          count,
          payload.clientInstanceId(),
          payload.isTerminating(),
          payload.contentType(),
          payload.data().remaining(),
          context.pushIntervalMs());
    }
  }

  @Override
  public void close() {
    if (pushes.get() > 0) {
      System.out.printf("{\"telemetry_pushes\":%d}%n", pushes.get());
    }
  }

  @Override
  public void init(List<KafkaMetric> metrics) {}

  @Override
  public void metricChange(KafkaMetric metric) {}

  @Override
  public void metricRemoval(KafkaMetric metric) {}
}
