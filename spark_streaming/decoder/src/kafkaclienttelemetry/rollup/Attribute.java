package kafkaclienttelemetry.rollup;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** One attribute. It is read in place, so text, the usual type, is not copied. */
final class Attribute {
    private final WireReader in;
    private int keyFrom;
    private int keyTo;
    private int textFrom;
    private int textTo;
    private boolean isText;
    private Object other;

    Attribute(WireReader in) {
        this.in = in;
    }

    /** Reads a length-prefixed KeyValue. */
    void read() throws MalformedException {
        keyFrom = 0;
        keyTo = 0;
        isText = false;
        other = null;
        int outer = in.enter();
        while (in.next()) {
            switch (in.tag()) {
                case 1 << 3 | WireReader.BYTES -> {
                    int length = in.length();
                    keyFrom = in.position();
                    keyTo = keyFrom + length;
                    in.move(length);
                }
                case 2 << 3 | WireReader.BYTES -> value();
                default -> in.skip();
            }
        }
        in.leave(outer);
    }

    private void value() throws MalformedException {
        int outer = in.enter();
        while (in.next()) {
            switch (in.tag()) {
                case 1 << 3 | WireReader.BYTES -> {
                    int length = in.length();
                    textFrom = in.position();
                    textTo = textFrom + length;
                    in.move(length);
                    isText = true;
                    other = null;
                }
                case 2 << 3 | WireReader.VARINT,
                        3 << 3 | WireReader.VARINT,
                        4 << 3 | WireReader.FIXED64,
                        5 << 3 | WireReader.BYTES,
                        6 << 3 | WireReader.BYTES,
                        7 << 3 | WireReader.BYTES,
                        8 << 3 | WireReader.VARINT -> {
                    isText = false;
                    other = AnyValue.field(in, other);
                }
                default -> in.skip();
            }
        }
        in.leave(outer);
    }

    boolean hasKey(byte[] key) {
        return Arrays.equals(in.bytes, keyFrom, keyTo, key, 0, key.length);
    }

    UTF8String key() {
        return UTF8String.fromBytes(in.bytes, keyFrom, keyTo - keyFrom);
    }

    /** Returns the value as text, or null if there is none. */
    UTF8String text() {
        if (isText) {
            return UTF8String.fromBytes(in.bytes, textFrom, textTo - textFrom);
        }
        return other == null ? null : UTF8String.fromString(AnyValue.toText(other));
    }
}
