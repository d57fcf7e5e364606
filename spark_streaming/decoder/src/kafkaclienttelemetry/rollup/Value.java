package kafkaclienttelemetry.rollup;

/** Which numbers the roll-up takes. Pushes with numbers beyond the plan's bounds are refused as a whole. */
final class Value {
    /** Means and corrections of smaller numbers could underflow, which PostgreSQL treats as an error. */
    private static final double MIN = 1e-100;

    private Value() {}

    /**
     * Says whether a number is a measured one.
     *
     * <p>Clients send NaN, an infinity or the largest double where they have measured nothing yet. They initialise
     * minima and maxima with these values.
     */
    static boolean isMeasured(double value) {
        return Math.abs(value) < Double.MAX_VALUE;
    }

    /** The number as it is rolled up. Numbers next to 0 become 0. */
    static double storable(double value) {
        return Math.abs(value) < MIN ? 0 : value;
    }

    /** Adds a count of 64 bits without a sign to a total from 0 to {@code max}; -1 if the result exceeds it. */
    static long add(long total, long count, long max) {
        return Long.compareUnsigned(count, max - total) > 0 ? -1 : total + count;
    }
}
