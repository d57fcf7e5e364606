package kafkaclienttelemetry.bridge;

/** The bridge's metrics in JMX. Counts are since the start of the plugin. */
public interface BridgeMetricsMBean {
    /** Pushes that the broker gave to the bridge. */
    long getReceived();

    /** Pushes that were written to a receiver, each time. */
    long getForwarded();

    /** Pushes that a receiver has taken. */
    long getAcknowledged();

    /** Pushes that a receiver has refused: its log and metrics say why. */
    long getRefused();

    /** Pushes that were sent again after a connection broke. */
    long getResent();

    /** Pushes that were dropped because too many wait. */
    long getDroppedQueueFull();

    /** Pushes that were dropped because the receiver takes none of that size. */
    long getDroppedTooLarge();

    /** Pushes that were dropped because the plugin was closed. */
    long getDroppedStopped();

    /** Pushes that were dropped for an error of the bridge's own. */
    long getDroppedError();

    /** Details of requests that this version of Kafka does not show. */
    long getUnreadableDetails();

    /** Pushes that wait, or are not acknowledged. */
    long getQueuedItems();

    /** Bytes of the pushes that wait, or are not acknowledged. */
    long getQueuedBytes();

    /** Receivers that the bridge is connected to. */
    int getConnected();
}
