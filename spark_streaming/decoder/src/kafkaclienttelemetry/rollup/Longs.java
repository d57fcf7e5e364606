package kafkaclienttelemetry.rollup;

import java.util.Arrays;

/** Growable list of unboxed longs. Doubles are stored as their bits. */
final class Longs {
    private long[] values = new long[16];
    private int size;

    void add(long value) {
        if (size == values.length) {
            values = Arrays.copyOf(values, 2 * size);
        }
        values[size++] = value;
    }

    void add(double value) {
        add(Double.doubleToRawLongBits(value));
    }

    void clear() {
        size = 0;
    }

    int size() {
        return size;
    }

    long get(int index) {
        return values[index];
    }

    double getDouble(int index) {
        return Double.longBitsToDouble(values[index]);
    }

    long[] toArray() {
        return Arrays.copyOf(values, size);
    }

    double[] toDoubles() {
        double[] doubles = new double[size];
        for (int index = 0; index < size; index++) {
            doubles[index] = getDouble(index);
        }
        return doubles;
    }
}
