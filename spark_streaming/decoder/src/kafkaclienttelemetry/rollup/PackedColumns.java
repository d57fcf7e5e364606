package kafkaclienttelemetry.rollup;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Columns of longs and one column of bytes, encoded one after the other in little-endian order. */
final class PackedColumns {
    private final Longs[] columns;
    private final Longs flags = new Longs();

    PackedColumns(int columns) {
        this.columns = new Longs[columns];
        for (int index = 0; index < columns; index++) {
            this.columns[index] = new Longs();
        }
    }

    void add(int flag, long... values) {
        for (int index = 0; index < columns.length; index++) {
            columns[index].add(values[index]);
        }
        flags.add(flag);
    }

    byte[] toBytes() {
        int size = flags.size();
        ByteBuffer buffer = ByteBuffer.allocate(size * (columns.length * Long.BYTES + 1));
        buffer.order(ByteOrder.LITTLE_ENDIAN);
        for (Longs column : columns) {
            for (int index = 0; index < size; index++) {
                buffer.putLong(column.get(index));
            }
        }
        for (int index = 0; index < size; index++) {
            buffer.put((byte) flags.get(index));
        }
        return buffer.array();
    }
}
