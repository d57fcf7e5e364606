package kafkaclienttelemetry.bridge;

import kafkaclienttelemetry.bridge.Counters.Count;

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
        return counters.get(Count.RECEIVED);
    }

    @Override
    public long getForwarded() {
        return counters.get(Count.FORWARDED);
    }

    @Override
    public long getAcknowledged() {
        return counters.get(Count.ACKNOWLEDGED);
    }

    @Override
    public long getRefused() {
        return counters.get(Count.REFUSED);
    }

    @Override
    public long getResent() {
        return counters.get(Count.RESENT);
    }

    @Override
    public long getDroppedQueueFull() {
        return counters.get(Count.DROPPED_FULL);
    }

    @Override
    public long getDroppedTooLarge() {
        return counters.get(Count.DROPPED_TOO_LARGE);
    }

    @Override
    public long getDroppedStopped() {
        return counters.get(Count.DROPPED_STOPPED);
    }

    @Override
    public long getDroppedError() {
        return counters.get(Count.DROPPED_ERROR);
    }

    @Override
    public long getUnreadableDetails() {
        return counters.get(Count.UNREADABLE);
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
