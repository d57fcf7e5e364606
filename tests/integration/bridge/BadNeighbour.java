package kafkatelemetry.testbed;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * A telemetry plugin with a mistake that others make, by the broker property {@code
 * testbed.neighbour}: it {@code reads} the buffer up, {@code throws}, or {@code waits} for 50 ms.
 */
public final class BadNeighbour
    implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
  private String mistake;

  @Override
  public void configure(Map<String, ?> configs) {
    mistake = String.valueOf(configs.get("testbed.neighbour"));
  }

  @Override
  public ClientTelemetryExporter clientTelemetryExporter() {
    return mistake.equals("null") ? null : this;
  }

  @Override
  public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
    switch (mistake) {
      case "reads" -> payload.data().get(new byte[payload.data().remaining()]);
      case "throws" -> throw new IllegalStateException("a mistake of the neighbour's");
      case "waits" -> {
        try {
          Thread.sleep(50);
        } catch (InterruptedException error) {
          Thread.currentThread().interrupt();
        }
      }
      default -> {}
    }
  }

  @Override
  public void close() {}

  @Override
  public void init(List<KafkaMetric> metrics) {}

  @Override
  public void metricChange(KafkaMetric metric) {}

  @Override
  public void metricRemoval(KafkaMetric metric) {}
}
