package kafkaclienttelemetry.bridge;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * What the bridge has counted since its start. Request handlers count here, so nothing waits, and
 * nothing allocates: the error that is counted may be a lack of memory.
 */
final class Counters {
    /** In the order of the protocol's Statistics frame. */
    enum Count {
        RECEIVED,
        FORWARDED,
        ACKNOWLEDGED,
        REFUSED,
        RESENT,
        DROPPED_FULL,
        DROPPED_TOO_LARGE,
        DROPPED_STOPPED,
        DROPPED_ERROR,
        UNREADABLE
    }

    private final AtomicLongArray values = new AtomicLongArray(Count.values().length);

    void add(Count what) {
        add(what, 1);
    }

    void add(Count what, long pushes) {
        values.addAndGet(what.ordinal(), pushes);
    }

    long get(Count what) {
        return values.get(what.ordinal());
    }
}
