package kafkaclienttelemetry.bridge;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import kafkaclienttelemetry.bridge.Counters.Count;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The bridge of one plugin instance, whichever interface the broker has.
 *
 * <p>A broker goes on calling a plugin that it has closed, and may have a second instance beside
 * it. So a closed bridge drops pushes and holds nothing, and no state is shared.
 */
final class Bridge {
    private static final int UNKNOWN_NODE = -1;

    private final Logger log = LoggerFactory.getLogger(Bridge.class);
    private final Counters counters = new Counters();
    private final RequestDetails details = new RequestDetails(counters);
    private final AtomicLong sequences = new AtomicLong();
    private BridgeConfig config;
    private boolean isBroker;
    private boolean closed;
    private int nodeId = UNKNOWN_NODE;
    private String clusterId = "";
    /** What takes pushes: null before the start and after the end. */
    private volatile Delivery delivery;

    /**
     * Takes the broker's properties.
     *
     * @throws ConfigException one of the bridge's own values is wrong
     */
    synchronized void configure(Map<String, ?> configs) {
        config = BridgeConfig.parse(configs);
        isBroker = BridgeConfig.isBroker(configs);
        nodeId = number(configs.get("node.id"), nodeId);
    }

    /** Takes the labels of the broker's metrics context. */
    synchronized void identify(Map<String, String> labels) {
        nodeId = number(labels.get("kafka.node.id"), nodeId);
        clusterId = labels.getOrDefault("kafka.cluster.id", clusterId);
    }

    /** Starts the delivery, on servers that take telemetry. What fails here costs pushes alone. */
    synchronized void start() {
        if (delivery != null || closed || !isBroker) {
            return;
        }
        try {
            Delivery started = new Delivery(config, nodeId, clusterId, counters);
            started.start();
            delivery = started;
        } catch (Throwable error) {
            log.error("the telemetry bridge can't start, pushes are dropped", error);
        }
    }

    /**
     * Takes changed properties.
     *
     * @throws ConfigException one of the bridge's own values is wrong
     */
    synchronized void reconfigure(Map<String, ?> configs) {
        config = BridgeConfig.parse(configs);
        Delivery current = delivery;
        if (current != null) {
            current.reconfigure(config);
        }
    }

    /** Ends the delivery in the background. */
    synchronized void close() {
        closed = true;
        Delivery current = delivery;
        delivery = null;
        if (current != null) {
            current.close();
        }
    }

    /** Takes a push, on a request handler of the broker: it never waits and never throws. */
    void take(AuthorizableRequestContext context, ClientTelemetryPayload payload, int intervalMs) {
        Delivery current = delivery;
        if (current == null) {
            return;
        }
        try {
            counters.add(Count.RECEIVED);
            // Other plugins have the same buffer, and one may have read it up. Kafka hands it over at
            // position 0. Its array is longer than the metrics.
            ByteBuffer data = payload.data().duplicate().rewind();
            long size = (long) data.remaining() + Push.OVERHEAD_BYTES;
            if (!current.budget().take(size)) {
                counters.add(Count.DROPPED_FULL);
                return;
            }
            Push push = null;
            try {
                long sequence = sequences.incrementAndGet();
                push = new Push(sequence, context, payload, intervalMs, details, data);
            } finally {
                if (push == null) {
                    current.budget().giveBack(size);
                }
            }
            current.offer(push);
        } catch (Throwable error) {
            // The broker answers INVALID_RECORD to what is thrown, and clients then stop pushing.
            failed();
        }
    }

    /** Counts a push that was dropped for an error of the bridge's own. */
    void failed() {
        counters.add(Count.DROPPED_ERROR);
    }

    private static int number(Object value, int standard) {
        try {
            return value == null ? standard : Integer.parseInt(value.toString());
        } catch (NumberFormatException error) {
            return standard;
        }
    }
}
