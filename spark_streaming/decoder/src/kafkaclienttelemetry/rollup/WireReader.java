package kafkaclienttelemetry.rollup;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads protobuf's wire format, one field after the other, and never beyond the message it is in.
 *
 * <p>What it refuses is what protobuf refuses: a varint of more than ten bytes, a field number 0, a length
 * beyond the end, groups that do not match. A field whose wire type is not the schema's is an unknown one, as
 * it is for protobuf: its tag is another, so a {@code switch} over tags passes it over.
 */
final class WireReader {
    static final int VARINT = 0;
    static final int FIXED64 = 1;
    static final int BYTES = 2;
    static final int GROUP = 3;
    static final int END_GROUP = 4;
    static final int FIXED32 = 5;

    /** How deep messages and groups may be nested: protobuf's limit. */
    static final int MAX_DEPTH = 100;

    /** Tags and lengths may be written in no more bytes, even where the further ones are zero. */
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

    /** How much work reading took so far: fields and numbers read, bytes copied and compared, entries searched. */
    long steps() {
        return steps;
    }

    /** Counts work that is done outside of this class. */
    void count(int more) {
        steps += more;
    }

    int position() {
        return position;
    }

    int limit() {
        return limit;
    }

    /** Goes to a part of the bytes, of which {@link #next} then reads the fields. */
    void enter(int from, int to) {
        position = from;
        limit = to;
    }

    /** Enters the message whose length is next; returns the end of the one around it, for {@link #leave}. */
    int enter() throws MalformedException {
        int outer = limit;
        int length = length();
        limit = position + length;
        return outer;
    }

    /** Goes on behind the message that was entered. */
    void leave(int outer) {
        position = limit;
        limit = outer;
    }

    /** Reads the next field's tag; false at the end of the message. */
    boolean next() throws MalformedException {
        if (position >= limit) {
            return false;
        }
        steps++;
        int first = bytes[position];
        if (first >= 8) { // one byte, as all of OTLP's are
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

    /** The field's number and wire type, as they are written. */
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

    /** A number in protobuf's zigzag form, of 32 bits. */
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

    /** The eight bytes at a place that is known to have them. */
    long longAt(int at) {
        return (long) LITTLE_ENDIAN_LONG.get(bytes, at);
    }

    /** The length that is next; so many bytes are there. */
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

    /** The text whose length is next; it shares the payload's bytes. */
    UTF8String text() throws MalformedException {
        int length = length();
        int from = position;
        position += length;
        return UTF8String.fromBytes(bytes, from, length);
    }

    /** Passes over what {@link #length} told of. */
    void move(int length) throws MalformedException {
        if (length > limit - position) {
            throw new MalformedException("a value beyond the end of its message", position);
        }
        position += length;
    }

    /** Passes over the field whose tag was read. */
    void skip() throws MalformedException {
        skip(MAX_DEPTH);
    }

    /** Passes over the field; groups in it may be nested so deep. */
    void skip(int depth) throws MalformedException {
        switch (tag & 7) {
            case VARINT -> varint();
            case FIXED64 -> move(8);
            case BYTES -> move(length());
            case GROUP -> skipGroup(depth);
            case FIXED32 -> move(4);
            case END_GROUP -> throw new MalformedException("the end of a group that did not begin", position);
            default -> throw new MalformedException("a wire type that there is not", position);
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

    /** Says whether two parts have the same bytes. */
    boolean same(int from, int to, int otherFrom, int otherTo) {
        steps += to - from;
        return Arrays.equals(bytes, from, to, bytes, otherFrom, otherTo);
    }
}
