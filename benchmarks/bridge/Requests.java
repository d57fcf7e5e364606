import java.net.InetAddress;
import java.nio.ByteBuffer;
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

/** What a broker gives to an exporter: pushes of a number of clients, in turns. */
final class Requests {
  private record Payload(Uuid clientInstanceId, boolean isTerminating, String contentType, ByteBuffer data)
      implements ClientTelemetryPayload {}

  private record Context(int pushIntervalMs, AuthorizableRequestContext authorizableRequestContext)
      implements ClientTelemetryContext {}

  private final byte[] metrics;
  private final Uuid[] instances;

  Requests(byte[] metrics, int clients) {
    this.metrics = metrics;
    instances = new Uuid[clients];
    for (int client = 0; client < clients; client++) {
      instances[client] = Uuid.randomUuid();
    }
  }

  /** A bridge as a broker starts it. */
  static BridgeExporter bridge(String receiver, String tokenFile) {
    BridgeExporter bridge = new BridgeExporter();
    bridge.configure(
        Map.of(
            "process.roles", "broker",
            "kafka.telemetry.bridge.receivers", receiver,
            "kafka.telemetry.bridge.token.file", tokenFile));
    bridge.contextChange(
        new KafkaMetricsContext("kafka.server", Map.of("kafka.node.id", "1", "kafka.cluster.id", "c")));
    bridge.clientTelemetryExporter();
    return bridge;
  }

  ClientTelemetryContext context(int number) throws Exception {
    return new Context(1000, request(number));
  }

  ClientTelemetryPayload payload(int number) {
    Uuid instance = instances[number % instances.length];
    return new Payload(instance, false, "OTLP", ByteBuffer.wrap(metrics, 0, metrics.length));
  }

  void give(ClientTelemetryExporter exporter, int number) throws Exception {
    exporter.exportMetrics(context(number), payload(number));
  }

  private RequestContext request(int number) throws Exception {
    int client = number % instances.length;
    return new RequestContext(
        new RequestHeader(ApiKeys.PUSH_TELEMETRY, (short) 0, "client-" + client, number),
        "10.0.0.1:9092-10.0.0.2:40000-" + client,
        InetAddress.getByAddress(new byte[] {10, 0, (byte) (client >> 8), (byte) client}),
        Optional.of(40_000),
        new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "alice"),
        new ListenerName("CLIENT"),
        SecurityProtocol.SASL_SSL,
        new ClientInformation("apache-kafka-java", "4.4.0"),
        false,
        Optional.empty());
  }
}
