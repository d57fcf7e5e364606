package kafkaclienttelemetry.rollup;

import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The identity that version 1 of a client's stored cumulative sums has: an XXH64 of 64 bits.
 *
 * <p>Only a state that an older version stored is matched by it, once, and only against the same client's points.
 * New states have {@link RollUp#identityHash}.
 */
final class LegacyIdentity {
    private static final long SEED = 42;

    private LegacyIdentity() {}

    /** One attribute; the sum over a point's attributes is the other argument of {@link #of}. */
    static long ofAttribute(UTF8String key, UTF8String text) {
        long hash = hash(key, XXH64.hashLong(text == null ? 2 : 3, SEED));
        return text == null ? hash : hash(text, hash);
    }

    static long of(UTF8String metric, long attributes) {
        return XXH64.hashLong(attributes, hash(metric, SEED));
    }

    private static long hash(UTF8String text, long seed) {
        return XXH64.hashUnsafeBytes(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), seed);
    }
}
