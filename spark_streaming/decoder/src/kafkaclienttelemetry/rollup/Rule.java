package kafkaclienttelemetry.rollup;

import org.apache.spark.unsafe.types.UTF8String;

/** Codes of the catalogue's {@code combines}: how values combine over clients and time. */
final class Rule {
    static final byte SUM = 0;
    static final byte RATE = 1;
    static final byte LAST = 2;
    static final byte MAX = 3;
    static final byte MIN = 4;
    static final byte DISTRIBUTION = 5;

    private static final UTF8String RATE_SUFFIX = UTF8String.fromString(".rate");
    private static final UTF8String MAX_SUFFIX = UTF8String.fromString(".max");
    private static final UTF8String MIN_SUFFIX = UTF8String.fromString(".min");

    private Rule() {}

    /** Returns the rule of a gauge that is not in the catalogue. */
    static byte bySuffix(UTF8String name) {
        if (name.endsWith(RATE_SUFFIX)) {
            return RATE;
        }
        if (name.endsWith(MAX_SUFFIX)) {
            return MAX;
        }
        return name.endsWith(MIN_SUFFIX) ? MIN : DISTRIBUTION;
    }
}
