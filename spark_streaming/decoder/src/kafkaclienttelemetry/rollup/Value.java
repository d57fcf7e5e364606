package kafkaclienttelemetry.rollup;

/** Decides which numbers are rolled up, and in which form. */
final class Value {
    /**
     * Smaller numbers could underflow in means and corrections, which is an error in PostgreSQL.
     */
    private static final double MIN = 1e-100;

    private Value() {}

    /**
     * Returns whether a number was measured.
     *
     * <p>Clients send NaN, an infinity or the largest double before they have measured anything,
     * because they initialise minima and maxima with these values.
     */
    static boolean isMeasured(double value) {
        return Math.abs(value) < Double.MAX_VALUE;
    }

    /** Returns the number to roll up. Tiny numbers become 0. */
    static double storable(double value) {
        return Math.abs(value) < MIN ? 0 : value;
    }

    /**
     * Adds an unsigned count to a total of at most {@code max}. Returns -1 if the result exceeds
     * it.
     */
    static long add(long total, long count, long max) {
        return Long.compareUnsigned(count, max - total) > 0 ? -1 : total + count;
    }
}
