package kafkaclienttelemetry.bridge;

import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * The entry for Kafka 4.2 and later: the plugin interface of KIP-1217.
 *
 * <p>A class of its own, because no earlier broker can load a class that names this interface.
 */
public final class BridgeExporter extends BridgePlugin
        implements ClientTelemetryExporterProvider, ClientTelemetryExporter {
    /** For the broker. */
    public BridgeExporter() {}

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        bridge().start();
        return this; // never null, because the broker would call it for each push
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        try {
            bridge().take(context.authorizableRequestContext(), payload, context.pushIntervalMs());
        } catch (Throwable error) { // a client whose push fails stops pushing until it is restarted
            bridge().failed();
        }
    }
}
