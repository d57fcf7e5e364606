package kafkaclienttelemetry.rollup;

import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/** What becomes of pushed text on its way into the store, and its hashes. */
final class Text {
    /**
     * Longer text is cut. The receiver cuts labels at 512 characters; five of these and an index's row of
     * PostgreSQL, which has 2704 bytes, is nearly full.
     */
    static final int MAX_BYTES = 512;

    /** The seed of Spark's own xxhash64, so that a client's key can be had in SQL as well. */
    static final long SEED = 42;

    private static final byte[] REPLACEMENT = {(byte) 0xef, (byte) 0xbf, (byte) 0xbd};

    private Text() {}

    /** The text as the store can have it: cut, and U+FFFD for U+0000, which PostgreSQL's text can't have. */
    static UTF8String storable(UTF8String text) {
        if (text == null) {
            return null;
        }
        int length = text.numBytes();
        if (length <= MAX_BYTES) {
            boolean clean = true;
            for (int at = 0; at < length; at++) {
                clean &= text.getByte(at) != 0;
            }
            if (clean) {
                return text;
            }
        }
        byte[] kept = new byte[MAX_BYTES];
        int size = 0;
        for (int at = 0; at < length; ) {
            int width = UTF8String.numBytesForFirstByte(text.getByte(at));
            boolean isNul = text.getByte(at) == 0;
            int added = isNul ? REPLACEMENT.length : width;
            if (size + added > MAX_BYTES || at + width > length) { // full, or text that is cut within a character
                break;
            }
            for (int index = 0; index < added; index++) {
                kept[size++] = isNul ? REPLACEMENT[index] : text.getByte(at + index);
            }
            at += width;
        }
        return UTF8String.fromBytes(kept, 0, size);
    }

    /** Hashes text, which must not be null, going on from another hash. */
    static long hash(UTF8String text, long seed) {
        return XXH64.hashUnsafeBytes(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), seed);
    }

    /**
     * Hashes some texts, any of them null. Which are there is hashed first and each text's hash has its
     * length in it, so nothing can be moved from one to the next without another hash.
     */
    static long hashAll(long seed, UTF8String... texts) {
        long present = 0;
        for (UTF8String text : texts) {
            present = present << 1 | (text == null ? 0 : 1);
        }
        long hash = XXH64.hashLong(present, seed);
        for (UTF8String text : texts) {
            hash = text == null ? hash : hash(text, hash);
        }
        return hash;
    }
}
