package kafkaclienttelemetry.rollup;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads protobuf's wire format field by field, within the bounds of the current message.
 *
 * <p>It refuses what protobuf refuses: varints of more than ten bytes, field number 0, lengths
 * beyond the end, and unmatched groups. A field with another wire type than in the schema has
 * another tag, so a {@code switch} over tags skips it as an unknown field, as protobuf does.
 */
final class WireReader {
    static final int VARINT = 0;
    static final int FIXED64 = 1;
    static final int BYTES = 2;
    static final int GROUP = 3;
    static final int END_GROUP = 4;
    static final int FIXED32 = 5;

    /** Protobuf's limit of nested messages and groups. */
    static final int MAX_DEPTH = 100;

    /** Longest encoding of tags and lengths, even if further bytes are zero. */
    private static final int MAX_BYTES_OF_32_BITS = 5;

    private static final VarHandle LITTLE_ENDIAN_LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    final byte[] bytes;
    private int position;
    private int limit;
    private int tag;
    private long steps;

    WireReader(byte[] bytes) {
        this.bytes = bytes;
        this.limit = bytes.length;
    }

    /**
     * Returns the work so far: fields and numbers read, bytes copied and compared, entries
     * searched.
     */
    long steps() {
        return steps;
    }

    /** Adds work done outside of this class. */
    void count(long more) {
        steps += more;
    }

    int position() {
        return position;
    }

    int limit() {
        return limit;
    }

    /** Moves to a range of bytes, whose fields {@link #next} then reads. */
    void enter(int from, int to) {
        position = from;
        limit = to;
    }

    /** Enters a length-prefixed message. Returns the end of the outer one, for {@link #leave}. */
    int enter() throws MalformedException {
        int outer = limit;
        int length = length();
        limit = position + length;
        return outer;
    }

    /** Moves behind the current message. */
    void leave(int outer) {
        position = limit;
        limit = outer;
    }

    /** Reads the next field's tag. Returns false at the end of the message. */
    boolean next() throws MalformedException {
        if (position >= limit) {
            return false;
        }
        steps++;
        int first = bytes[position];
        if (first >= 8) { // a tag of one byte, as all in OTLP
            position++;
            tag = first;
            return true;
        }
        int at = position;
        long read = varint();
        if (read >>> 32 != 0 || position - at > MAX_BYTES_OF_32_BITS) {
            throw new MalformedException("a tag of more than 32 bits", at);
        }
        if (read >>> 3 == 0) {
            throw new MalformedException("a field number 0", at);
        }
        tag = (int) read;
        return true;
    }

    /** Returns the encoded field number and wire type. */
    int tag() {
        return tag;
    }

    int wireType() {
        return tag & 7;
    }

    int fieldNumber() {
        return tag >>> 3;
    }

    long varint() throws MalformedException {
        int at = position;
        long value = 0;
        steps++;
        for (int shift = 0; shift < 70; shift += 7) {
            if (position >= limit) {
                throw new MalformedException("a number beyond the end of its message", at);
            }
            byte next = bytes[position++];
            value |= (long) (next & 0x7f) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw new MalformedException("a number of more than ten bytes", at);
    }

    /** Reads a 32-bit number in zigzag encoding. */
    int zigzag() throws MalformedException {
        int value = (int) varint();
        return value >>> 1 ^ -(value & 1);
    }

    long fixed64() throws MalformedException {
        int at = position;
        move(8);
        return longAt(at);
    }

    double float64() throws MalformedException {
        return Double.longBitsToDouble(fixed64());
    }

    /** Reads eight bytes at a position, without a check. */
    long longAt(int at) {
        return (long) LITTLE_ENDIAN_LONG.get(bytes, at);
    }

    /** Reads a length, and checks that the message has as many bytes. */
    int length() throws MalformedException {
        int at = position;
        long length = varint();
        if (length < 0 || length > limit - position) {
            throw new MalformedException("a length beyond the end of its message", at);
        }
        if (position - at > MAX_BYTES_OF_32_BITS) {
            throw new MalformedException("a length of more than 32 bits", at);
        }
        return (int) length;
    }

    /** Reads length-prefixed text, without copying it. */
    UTF8String text() throws MalformedException {
        int length = length();
        int from = position;
        position += length;
        return UTF8String.fromBytes(bytes, from, length);
    }

    /** Skips bytes. */
    void move(int length) throws MalformedException {
        if (length > limit - position) {
            throw new MalformedException("a value beyond the end of its message", position);
        }
        position += length;
    }

    /** Skips the current field. */
    void skip() throws MalformedException {
        skip(MAX_DEPTH);
    }

    /** Skips the current field, whose groups may be nested to this depth. */
    void skip(int depth) throws MalformedException {
        switch (tag & 7) {
            case VARINT -> varint();
            case FIXED64 -> move(8);
            case BYTES -> move(length());
            case GROUP -> skipGroup(depth);
            case FIXED32 -> move(4);
            case END_GROUP -> throw new MalformedException("the end of a group without its start", position);
            default -> throw new MalformedException("an unknown wire type", position);
        }
    }

    private void skipGroup(int depth) throws MalformedException {
        if (depth <= 0) {
            throw tooDeep();
        }
        int number = fieldNumber();
        while (next()) {
            if (wireType() == END_GROUP && fieldNumber() == number) {
                return;
            }
            skip(depth - 1);
        }
        throw new MalformedException("the end of a message within a group", position);
    }

    MalformedException tooDeep() {
        return new MalformedException("messages nested deeper than " + MAX_DEPTH, position);
    }

    /** Returns whether two ranges have the same bytes. */
    boolean same(int from, int to, int otherFrom, int otherTo) {
        steps += to - from;
        return Arrays.equals(bytes, from, to, bytes, otherFrom, otherTo);
    }
}
