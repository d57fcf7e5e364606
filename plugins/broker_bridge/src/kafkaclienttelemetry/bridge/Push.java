package kafkaclienttelemetry.bridge;

import java.net.InetAddress;
import java.nio.ByteBuffer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * A push with its context.
 *
 * <p>It is made on a request handler, so it only keeps references to what the broker knows. The
 * metrics alone are copied, because the broker uses their buffer again.
 */
final class Push {
    static final int UNKNOWN_INTERVAL = -1;
    static final int UNKNOWN_PORT = 0;
    /** About what a push takes beside its metrics. */
    static final int OVERHEAD_BYTES = 512;

    final long sequence;
    final long receivedAtMs = System.currentTimeMillis();
    final Uuid instanceId;
    final boolean terminating;
    final int correlationId;
    final int intervalMs;
    final int port;
    final String clientId;
    final Object principal;
    final InetAddress address;
    final String listener;
    final String securityProtocol;
    final String softwareName;
    final String softwareVersion;
    final String connectionId;
    final byte[] metrics;

    Push(
            long sequence,
            AuthorizableRequestContext context,
            ClientTelemetryPayload payload,
            int intervalMs,
            RequestDetails details,
            ByteBuffer data) {
        this.sequence = sequence;
        this.intervalMs = intervalMs;
        instanceId = payload.clientInstanceId();
        terminating = payload.isTerminating();
        correlationId = context.correlationId();
        clientId = context.clientId();
        principal = context.principal();
        address = context.clientAddress();
        listener = context.listenerName();
        securityProtocol = context.securityProtocol().name;
        port = details.port(context);
        connectionId = details.connectionId(context);
        softwareName = details.softwareName(context);
        softwareVersion = details.softwareVersion(context);
        metrics = new byte[data.remaining()];
        data.get(metrics);
    }

    /**
     * Whether the metrics may be compressed: Kafka 3.7 hands on what the client sent, and does not
     * say how. Its interface shows no interval either, and is that of 3.8 to 4.1 too.
     */
    boolean codecIsUnknown() {
        return intervalMs == UNKNOWN_INTERVAL;
    }

    /** About the memory that it takes. */
    long bytes() {
        return (long) metrics.length + OVERHEAD_BYTES;
    }
}
