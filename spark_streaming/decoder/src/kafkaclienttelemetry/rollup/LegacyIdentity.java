package kafkaclienttelemetry.rollup;

import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The 64-bit XXH64 identity of cumulative sums in states of version 1.
 *
 * <p>It is used once for each stored state, and only compared with points of the same client. New
 * states have {@link RollUp#identityHash}.
 */
final class LegacyIdentity {
    private static final long SEED = 42;

    private LegacyIdentity() {}

    /** Hashes one attribute. The sum over a point's attributes is an argument of {@link #of}. */
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
