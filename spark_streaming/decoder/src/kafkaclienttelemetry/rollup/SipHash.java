package kafkaclienttelemetry.rollup;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * SipHash-2-4 with 128 bits of output, over fields that are each a whole number of 64-bit words.
 *
 * <p>A text is one word (0 for null, else its length in bytes plus 1) and its bytes, padded with
 * zeros to a whole word. This encoding is unambiguous: two different lists of fields never have the
 * same words. The first word is the domain.
 *
 * <p>The state after any field can be copied, so that common prefixes are hashed once.
 *
 * <p>Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF"; the 128-bit variant of its
 * reference code.
 */
final class SipHash {
    /** Domains. */
    static final long SERIES = 1;
    static final long CUMULATIVE = 2;
    static final long ATTRIBUTE = 3;
    static final long TEXT = 4;
    static final long POINT = 5;
    static final long PART = 6;

    private long v0;
    private long v1;
    private long v2;
    private long v3;
    private int words;

    /**
     * Result of {@link #finish}: the first 64 bits in the order of the reference code, and the
     * others.
     */
    long high;
    long low;

    SipHash begin(IdKey key, long domain) {
        v0 = key.first ^ 0x736f6d6570736575L;
        v1 = key.second ^ 0x646f72616e646f6dL ^ 0xee;
        v2 = key.first ^ 0x6c7967656e657261L;
        v3 = key.second ^ 0x7465646279746573L;
        words = 0;
        return word(domain);
    }

    /** Continues from the state of another hash. */
    SipHash resumeFrom(SipHash other) {
        v0 = other.v0;
        v1 = other.v1;
        v2 = other.v2;
        v3 = other.v3;
        words = other.words;
        return this;
    }

    SipHash word(long word) {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
        words++;
        return this;
    }

    /** Adds a text; null differs from an empty one. */
    SipHash text(UTF8String text) {
        if (text == null) {
            return word(0);
        }
        int length = text.numBytes();
        word(length + 1L);
        Object base = text.getBaseObject();
        long at = text.getBaseOffset();
        long end = at + length;
        // The rounds of word(), with the state in local variables, which the compiler keeps in
        // registers.
        long a = v0;
        long b = v1;
        long c = v2;
        long d = v3;
        for (; end - at >= Long.BYTES; at += Long.BYTES) {
            long word = littleEndian(Platform.getLong(base, at));
            d ^= word;
            for (int round = 0; round < 2; round++) {
                a += b;
                b = Long.rotateLeft(b, 13) ^ a;
                a = Long.rotateLeft(a, 32);
                c += d;
                d = Long.rotateLeft(d, 16) ^ c;
                a += d;
                d = Long.rotateLeft(d, 21) ^ a;
                c += b;
                b = Long.rotateLeft(b, 17) ^ c;
                c = Long.rotateLeft(c, 32);
            }
            a ^= word;
        }
        v0 = a;
        v1 = b;
        v2 = c;
        v3 = d;
        words += length / Long.BYTES;
        if (at < end) {
            long tail = 0;
            for (int shift = 0; at < end; at++, shift += Byte.SIZE) {
                tail |= (Platform.getByte(base, at) & 0xffL) << shift;
            }
            word(tail);
        }
        return this;
    }

    private static long littleEndian(long word) {
        return java.nio.ByteOrder.nativeOrder() == java.nio.ByteOrder.BIG_ENDIAN ? Long.reverseBytes(word) : word;
    }

    /** Ends the input; the hash is in {@link #high} and {@link #low}. */
    SipHash finish() {
        // The lowest 8 bits of the length in bytes, as in the reference code.
        word((long) words * Long.BYTES << 56);
        v2 ^= 0xee;
        round();
        round();
        round();
        round();
        high = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        round();
        round();
        round();
        round();
        low = v0 ^ v1 ^ v2 ^ v3;
        return this;
    }

    private void round() {
        v0 += v1;
        v1 = Long.rotateLeft(v1, 13) ^ v0;
        v0 = Long.rotateLeft(v0, 32);
        v2 += v3;
        v3 = Long.rotateLeft(v3, 16) ^ v2;
        v0 += v3;
        v3 = Long.rotateLeft(v3, 21) ^ v0;
        v2 += v1;
        v1 = Long.rotateLeft(v1, 17) ^ v2;
        v2 = Long.rotateLeft(v2, 32);
    }
}
