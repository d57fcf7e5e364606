package kafkaclienttelemetry.rollup;

import java.util.Arrays;

/** Positions of all occurrences of one message field, which protobuf merges. */
final class Ranges {
    private int[] ends = new int[4];
    private int size;

    void clear() {
        size = 0;
    }

    int size() {
        return size / 2;
    }

    int from(int index) {
        return ends[2 * index];
    }

    int to(int index) {
        return ends[2 * index + 1];
    }

    /** Adds a length-prefixed message and skips it. */
    void add(WireReader in) throws MalformedException {
        int length = in.length();
        if (size == ends.length) {
            ends = Arrays.copyOf(ends, 2 * size);
        }
        ends[size++] = in.position();
        ends[size++] = in.position() + length;
        in.move(length);
    }

    /** Returns whether both have the same bytes in the same number of parts. */
    boolean sameBytes(Ranges other, WireReader in) {
        boolean same = size == other.size;
        for (int index = 0; same && index < size(); index++) {
            same = in.same(from(index), to(index), other.from(index), other.to(index));
        }
        return same;
    }
}
