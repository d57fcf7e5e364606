package kafkaclienttelemetry.rollup;

import java.util.Set;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Dimensions whose values are bounded, so that a client can't have any number of series.
 *
 * <p>A value beyond the bounds becomes {@link #OTHER}. A bound depends on the value only, so that a
 * series is the same in all pushes, batches and executors.
 */
final class Dimensions {
    static final UTF8String OTHER = UTF8String.fromString("other");

    /** The draft's label of records that have no partition yet. */
    private static final UTF8String UNASSIGNED = UTF8String.fromString("unassigned");

    /** The draft's values, and those of the producer's setting {@code acks}. */
    private static final Set<UTF8String> ACKS = Set.of(
            UTF8String.fromString("all"),
            UTF8String.fromString("none"),
            UTF8String.fromString("leader"),
            UTF8String.fromString("-1"),
            UTF8String.fromString("0"),
            UTF8String.fromString("1"));

    private static final int MAX_DIGITS = 10;

    private Dimensions() {}

    /** Returns one of a few values; null for null. */
    static UTF8String acks(UTF8String text) {
        return text == null || ACKS.contains(text) ? text : OTHER;
    }

    /**
     * Returns the partition if it is below a maximum, or "unassigned"; null for null.
     *
     * @param maxPartitions 0 means that partitions are no dimension
     */
    static UTF8String partition(UTF8String text, long maxPartitions) {
        if (text == null || maxPartitions == 0) {
            return null;
        }
        if (text.equals(UNASSIGNED)) {
            return text;
        }
        int length = text.numBytes();
        if (length == 0 || length > MAX_DIGITS || length > 1 && text.getByte(0) == '0') {
            return OTHER;
        }
        long number = 0;
        for (int at = 0; at < length; at++) {
            byte digit = text.getByte(at);
            if (digit < '0' || digit > '9') {
                return OTHER;
            }
            number = 10 * number + digit - '0';
        }
        return number < maxPartitions ? text : OTHER;
    }
}
