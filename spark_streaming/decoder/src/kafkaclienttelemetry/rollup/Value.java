package kafkaclienttelemetry.rollup;

/** Which numbers a roll-up can have. */
final class Value {
    /** Sums of more values than there are clients still are finite, which PostgreSQL insists on. */
    private static final double MAX = 1e300;
    /** An average of these can't underflow, which PostgreSQL takes for an error too. */
    private static final double MIN = 1e-300;
    /** Sums of more counts than there are pushes still have room in 64 bits. */
    private static final long MAX_COUNT = 1L << 40;

    private Value() {}

    /** Says whether a number is one to be rolled up: neither NaN nor infinite, nor near to it. */
    static boolean counts(double value) {
        return Math.abs(value) < MAX;
    }

    /** The number as it is rolled up: what is next to nothing is 0. */
    static double storable(double value) {
        return Math.abs(value) < MIN ? 0 : value;
    }

    /** A count, of 64 bits without a sign, as it is rolled up. */
    static long storableCount(long count) {
        return count < 0 ? MAX_COUNT : Math.min(count, MAX_COUNT);
    }
}
