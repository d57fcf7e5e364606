package kafkaclienttelemetry.rollup;

import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Makes text storable: short, valid UTF-8, without U+0000. Different texts stay different.
 *
 * <p>Text that can't be stored unchanged is cut and gets an ellipsis and its own hash, as 32
 * hexadecimal digits. So does text that already has this form. So no client can send the stored
 * form of another text.
 */
final class Text {
    /**
     * Longer text is cut. The receiver cuts labels at 512 characters, and five of these nearly fill
     * an index row of PostgreSQL, which has 2704 bytes.
     */
    static final int MAX_BYTES = 512;

    private static final byte[] REPLACEMENT = {(byte) 0xef, (byte) 0xbf, (byte) 0xbd};
    private static final byte[] ELLIPSIS = {(byte) 0xe2, (byte) 0x80, (byte) 0xa6};
    private static final int DIGITS = 32;
    private static final int MARK_BYTES = ELLIPSIS.length + DIGITS;
    private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private Text() {}

    /** Returns the storable form of text that {@link Schema} has checked to be valid UTF-8. */
    static UTF8String storable(UTF8String text, IdKey key) {
        return text == null || isStorable(text) ? text : marked(text, key);
    }

    /** Returns the storable form of unchecked text. */
    static UTF8String storableOfAnyBytes(UTF8String text, IdKey key) {
        return text == null || text.isValid() && isStorable(text) ? text : marked(text, key);
    }

    private static boolean isStorable(UTF8String text) {
        int length = text.numBytes();
        if (length > MAX_BYTES) {
            return false;
        }
        boolean clean = true;
        for (int at = 0; at < length; at++) {
            clean &= text.getByte(at) != 0;
        }
        return clean && !(length >= MARK_BYTES && isMarked(text, length - MARK_BYTES));
    }

    private static boolean isMarked(UTF8String text, int from) {
        for (int index = 0; index < ELLIPSIS.length; index++) {
            if (text.getByte(from + index) != ELLIPSIS[index]) {
                return false;
            }
        }
        for (int index = ELLIPSIS.length; index < MARK_BYTES; index++) {
            byte digit = text.getByte(from + index);
            if (!(digit >= '0' && digit <= '9' || digit >= 'a' && digit <= 'f')) {
                return false;
            }
        }
        return true;
    }

    private static UTF8String marked(UTF8String text, IdKey key) {
        SipHash hash = new SipHash().begin(key, SipHash.TEXT).text(text).finish();
        UTF8String valid = text.makeValid();
        byte[] kept = new byte[MAX_BYTES];
        int size = 0;
        for (int at = 0; at < valid.numBytes(); ) {
            int width = UTF8String.numBytesForFirstByte(valid.getByte(at));
            boolean isNul = valid.getByte(at) == 0;
            int added = isNul ? REPLACEMENT.length : width;
            if (size + added > MAX_BYTES - MARK_BYTES || at + width > valid.numBytes()) {
                // No space is left, or the text ends within a character.
                break;
            }
            for (int index = 0; index < added; index++) {
                kept[size++] = isNul ? REPLACEMENT[index] : valid.getByte(at + index);
            }
            at += width;
        }
        for (byte one : ELLIPSIS) {
            kept[size++] = one;
        }
        for (long half : new long[] {hash.high, hash.low}) {
            for (int shift = Long.SIZE - 4; shift >= 0; shift -= 4) {
                kept[size++] = HEX[(int) (half >>> shift) & 15];
            }
        }
        return UTF8String.fromBytes(kept, 0, size);
    }
}
