package kafkaclienttelemetry.rollup;

import java.util.Map;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Metrics by name. Each data point asks for one, so a look-up reads few bytes of the name.
 *
 * <p>The names are those of the catalogue. Clients can't add any, so they can't make look-ups slow.
 */
final class MetricTable {
    private static final long MIX = 0x9e3779b97f4a7c15L;
    /** Slots for each name. A name that is not there meets an empty slot soon. */
    private static final int SPACE = 8;

    private final UTF8String[] names;
    private final Plan.Metric[] metrics;

    MetricTable(Map<UTF8String, Plan.Metric> from) {
        int slots = Integer.highestOneBit(Math.max(1, from.size())) * SPACE;
        names = new UTF8String[slots];
        metrics = new Plan.Metric[slots];
        from.forEach((name, metric) -> {
            int slot = slot(name);
            names[slot] = name;
            metrics[slot] = metric;
        });
    }

    /** Returns the metric of a name; null if there is none. */
    Plan.Metric get(UTF8String name) {
        return metrics[slot(name)];
    }

    /** Returns the slot that has a name, or the empty one that it would get. */
    private int slot(UTF8String name) {
        int mask = names.length - 1;
        int slot = hash(name) & mask;
        while (names[slot] != null && !names[slot].equals(name)) {
            slot = (slot + 1) & mask;
        }
        return slot;
    }

    /** Names differ most in the middle and at the end. */
    private static int hash(UTF8String name) {
        int length = name.numBytes();
        if (length < Long.BYTES) {
            return length;
        }
        Object base = name.getBaseObject();
        long end = name.getBaseOffset() + length - Long.BYTES;
        long middle = Platform.getLong(base, name.getBaseOffset() + (length - Long.BYTES) / 2);
        long hash = ((Platform.getLong(base, end) * MIX ^ middle) + length) * MIX;
        return (int) (hash >>> Integer.SIZE);
    }
}
