package kafkaclienttelemetry.bridge;

import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** The entry for Kafka 3.7 to 4.1: the plugin interface of KIP-714. */
public final class BridgeReporter extends BridgePlugin
        implements ClientTelemetry, ClientTelemetryReceiver {
    /** For the broker. */
    public BridgeReporter() {}

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        bridge().start();
        return this; // never null, because Kafka 4.2 and later call a null for each push
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        bridge().take(context, payload, Push.UNKNOWN_INTERVAL);
    }
}
