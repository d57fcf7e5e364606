package kafkaclienttelemetry.bridge;

/** Reads the bridge's metrics. */
final class BridgeMetrics implements BridgeMetricsMBean {
    private final Delivery delivery;
    private final Counters counters;

    BridgeMetrics(Delivery delivery) {
        this.delivery = delivery;
        counters = delivery.counters();
    }

    @Override
    public long getReceived() {
        return counters.getReceived();
    }

    @Override
    public long getForwarded() {
        return counters.getForwarded();
    }

    @Override
    public long getAcknowledged() {
        return counters.getAcknowledged();
    }

    @Override
    public long getRefused() {
        return counters.getRefused();
    }

    @Override
    public long getResent() {
        return counters.getResent();
    }

    @Override
    public long getDroppedQueueFull() {
        return counters.getDroppedFull();
    }

    @Override
    public long getDroppedTooLarge() {
        return counters.getDroppedTooLarge();
    }

    @Override
    public long getDroppedStopped() {
        return counters.getDroppedStopped();
    }

    @Override
    public long getDroppedError() {
        return counters.getDroppedError();
    }

    @Override
    public long getUnreadableDetails() {
        return counters.getUnreadable();
    }

    @Override
    public long getQueuedItems() {
        return delivery.budget().items();
    }

    @Override
    public long getQueuedBytes() {
        return delivery.budget().bytes();
    }

    @Override
    public int getConnected() {
        return delivery.linksConnected();
    }

    /** All values, in the order of the protocol's Statistics frame. */
    long[] values() {
        return new long[] {
            getReceived(),
            getForwarded(),
            getAcknowledged(),
            getRefused(),
            getResent(),
            getDroppedQueueFull(),
            getDroppedTooLarge(),
            getDroppedStopped(),
            getDroppedError(),
            getUnreadableDetails(),
            getQueuedItems(),
            getQueuedBytes(),
            getConnected(),
        };
    }
}
