import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import kafkaclienttelemetry.bridge.BridgeExporter;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Measures what the bridge costs the request handler that calls it, beside an exporter that does
 * nothing, in turns. Prints a JSON line for each round: nanoseconds of a call (mean and 99th
 * percentile), and CPU seconds of the whole process.
 *
 * <p>Arguments: receiver, token file, file of the metrics, pushes a second, seconds, rounds.
 */
public final class HandlerCost {
  private record Payload(Uuid clientInstanceId, boolean isTerminating, String contentType, ByteBuffer data)
      implements ClientTelemetryPayload {}

  private record Context(int pushIntervalMs, AuthorizableRequestContext authorizableRequestContext)
      implements ClientTelemetryContext {}

  public static void main(String[] arguments) throws Exception {
    BridgeExporter bridge = new BridgeExporter();
    bridge.configure(
        Map.of(
            "process.roles", "broker",
            "kafka.telemetry.bridge.receivers", arguments[0],
            "kafka.telemetry.bridge.token.file", arguments[1]));
    bridge.contextChange(
        new KafkaMetricsContext("kafka.server", Map.of("kafka.node.id", "1", "kafka.cluster.id", "c")));
    ClientTelemetryExporter exporter = bridge.clientTelemetryExporter();
    ClientTelemetryExporter nothing = (context, payload) -> {};
    byte[] metrics = Files.readAllBytes(Path.of(arguments[2]));
    double rate = Double.parseDouble(arguments[3]);
    int count = (int) (rate * Double.parseDouble(arguments[4]));
    Thread.sleep(1000); // connects
    for (int round = -1; round < Integer.parseInt(arguments[5]); round++) {
      measure("nothing", round, nothing, metrics, rate, count);
      measure("bridge", round, exporter, metrics, rate, count);
    }
    bridge.close();
  }

  private static void measure(
      String name, int round, ClientTelemetryExporter exporter, byte[] metrics, double rate, int count)
      throws Exception {
    long[] taken = new long[count];
    long cpu = cpuNs();
    long start = System.nanoTime();
    for (int index = 0; index < count; index++) {
      long due = start + (long) (index * 1e9 / rate);
      while (System.nanoTime() < due) {
        Thread.sleep(0, 200_000);
      }
      Context context = new Context(1000, request(index));
      Payload payload =
          new Payload(Uuid.randomUuid(), false, "OTLP", ByteBuffer.wrap(metrics, 0, metrics.length));
      long before = System.nanoTime();
      exporter.exportMetrics(context, payload);
      taken[index] = System.nanoTime() - before;
    }
    cpu = cpuNs() - cpu;
    Arrays.sort(taken);
    if (round >= 0) { // the first round warms the code up
      System.out.printf(
          "{\"exporter\":\"%s\",\"mean_ns\":%.0f,\"median_ns\":%d,\"p99_ns\":%d,\"cpu_s\":%.4f}%n",
          name,
          Arrays.stream(taken).average().orElse(0),
          taken[count / 2],
          taken[count * 99 / 100],
          cpu / 1e9);
    }
  }

  private static long cpuNs() {
    return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private static RequestContext request(int number) throws Exception {
    return new RequestContext(
        new RequestHeader(ApiKeys.PUSH_TELEMETRY, (short) 0, "client-" + number % 1000, number),
        "10.0.0.1:9092-10.0.0.2:40000-" + number % 1000,
        InetAddress.getByAddress(new byte[] {10, 0, (byte) (number >> 8), (byte) number}),
        Optional.of(40_000),
        new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "alice"),
        new ListenerName("CLIENT"),
        SecurityProtocol.SASL_SSL,
        new ClientInformation("apache-kafka-java", "4.4.0"),
        false,
        Optional.empty());
  }
}
