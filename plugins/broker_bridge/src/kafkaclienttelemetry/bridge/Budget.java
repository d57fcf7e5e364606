package kafkaclienttelemetry.bridge;

import java.util.concurrent.atomic.AtomicLong;

/** Bounds the pushes that the bridge holds, in items and bytes. Nothing waits for room. */
final class Budget {
    private final AtomicLong items = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private volatile long maxItems;
    private volatile long maxBytes;

    Budget(long maxItems, long maxBytes) {
        resize(maxItems, maxBytes);
    }

    /** Sets the bounds; what is held already stays. */
    void resize(long maxItems, long maxBytes) {
        this.maxItems = maxItems;
        this.maxBytes = maxBytes;
    }

    /** Takes room for a push; false if there is none. */
    boolean take(long size) {
        if (bytes.addAndGet(size) <= maxBytes) {
            if (items.incrementAndGet() <= maxItems) {
                return true;
            }
            items.decrementAndGet();
        }
        bytes.addAndGet(-size);
        return false;
    }

    /** Gives the room of a push back. */
    void giveBack(long size) {
        giveBack(1, size);
    }

    /** Gives the room of several pushes back, which have so many bytes together. */
    void giveBack(int pushes, long size) {
        items.addAndGet(-pushes);
        bytes.addAndGet(-size);
    }

    long items() {
        return items.get();
    }

    long bytes() {
        return bytes.get();
    }
}
