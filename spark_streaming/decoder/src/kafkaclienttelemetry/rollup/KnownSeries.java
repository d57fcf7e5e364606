package kafkaclienttelemetry.rollup;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The series hashes that this JVM has described, so that the dimensions of most series are sent
 * once.
 *
 * <p>A hint only. It forgets a series when its table is full, and it may remember one that a failed
 * task has described. The reader of the entries looks each hash up, and asks for all dimensions if
 * it lacks one.
 *
 * <p>Not synchronized, because a lost update only describes a series again.
 */
final class KnownSeries {
    private static final Map<String, KnownSeries> OF_KEYS = new ConcurrentHashMap<>();
    private static final int FIRST_SLOTS = 1 << 12;
    /** 32 MiB of memory; some three million series. */
    static final int MAX_SLOTS = 1 << 22;
    /** Bounds the work for a hash. In a table that is half full, hardly a hash needs as many. */
    private static final int PROBES = 64;
    private static final long EMPTY = 0;

    private volatile long[] hashes = new long[FIRST_SLOTS];
    /** About the number of slots in use. Above a half of them, the table grows. */
    private int used;

    KnownSeries() {}

    /** Returns the series that were described with a key. */
    static KnownSeries of(IdKey key) {
        return OF_KEYS.computeIfAbsent(key.id(), unused -> new KnownSeries());
    }

    /**
     * Returns whether all series were described.
     *
     * <p>The table is larger than a processor's cache. One loop over all series of a push lets the
     * processor load many slots at a time.
     *
     * @param highs the first halves of their hashes; two series share it once in 2<sup>64</sup>
     *     pairs
     */
    boolean containsAll(Longs highs) {
        long[] slots = hashes;
        boolean all = true;
        for (int index = 0; index < highs.size(); index++) {
            all &= find(slots, highs.get(index)) < 0;
        }
        return all;
    }

    /** Adds series that are being described. */
    void addAll(Longs highs) {
        for (int index = 0; index < highs.size(); index++) {
            add(highs.get(index));
        }
    }

    private void add(long high) {
        long[] slots = hashes;
        int free = find(slots, high);
        if (free < 0) {
            return;
        }
        if (++used * 2 > slots.length && slots.length < MAX_SLOTS) {
            slots = grow(slots);
            free = Math.max(0, find(slots, high));
        }
        slots[free] = high;
    }

    /** Returns the slot for a new hash, the first one if all are in use; -1 if it is known. */
    private static int find(long[] slots, long high) {
        int mask = slots.length - 1;
        int first = (int) high & mask;
        for (int probe = 0; probe < PROBES; probe++) {
            int slot = (first + probe) & mask;
            if (slots[slot] == high) {
                return -1;
            }
            if (slots[slot] == EMPTY) {
                return slot;
            }
        }
        return first;
    }

    private synchronized long[] grow(long[] slots) {
        if (hashes != slots) {
            return hashes;
        }
        long[] larger = new long[2 * slots.length];
        for (long high : slots) {
            if (high != EMPTY) {
                larger[Math.max(0, find(larger, high))] = high;
            }
        }
        hashes = larger;
        return larger;
    }
}
