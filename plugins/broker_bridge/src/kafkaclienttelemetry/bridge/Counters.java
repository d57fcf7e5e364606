package kafkaclienttelemetry.bridge;

import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/** What the bridge has counted since its start. Request handlers count here, so nothing waits. */
final class Counters {
    private final LongAdder received = new LongAdder();
    private final LongAdder forwarded = new LongAdder();
    private final LongAdder acknowledged = new LongAdder();
    private final LongAdder refused = new LongAdder();
    private final LongAdder resent = new LongAdder();
    private final LongAdder droppedFull = new LongAdder();
    private final LongAdder droppedTooLarge = new LongAdder();
    private final LongAdder droppedStopped = new LongAdder();
    // Not an adder, because that may allocate, and the error may be a lack of memory.
    private final AtomicLong droppedError = new AtomicLong();
    private final AtomicLong unreadable = new AtomicLong();

    void received() {
        received.increment();
    }

    void forwarded() {
        forwarded.increment();
    }

    void acknowledged() {
        acknowledged.increment();
    }

    void refused() {
        refused.increment();
    }

    void resent() {
        resent.increment();
    }

    void droppedFull() {
        droppedFull.increment();
    }

    void droppedTooLarge() {
        droppedTooLarge.increment();
    }

    void droppedStopped() {
        droppedStopped.increment();
    }

    void droppedError() {
        droppedError.incrementAndGet();
    }

    void unreadable() {
        unreadable.incrementAndGet();
    }

    long getReceived() {
        return received.sum();
    }

    long getForwarded() {
        return forwarded.sum();
    }

    long getAcknowledged() {
        return acknowledged.sum();
    }

    long getRefused() {
        return refused.sum();
    }

    long getResent() {
        return resent.sum();
    }

    long getDroppedFull() {
        return droppedFull.sum();
    }

    long getDroppedTooLarge() {
        return droppedTooLarge.sum();
    }

    long getDroppedStopped() {
        return droppedStopped.sum();
    }

    long getDroppedError() {
        return droppedError.get();
    }

    long getUnreadable() {
        return unreadable.get();
    }
}
