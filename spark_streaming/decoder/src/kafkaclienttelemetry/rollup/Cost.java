package kafkaclienttelemetry.rollup;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@code otlp_cost}: measures the work of the other functions for a push, without a clock.
 *
 * <p>Steps count fields, numbers, compared bytes and searched entries. Allocated bytes also show
 * the work of libraries, for example repeated copies of a collection.
 */
public final class Cost {
    static final StructType TYPE = new StructType()
            .add("steps", DataTypes.createArrayType(DataTypes.LongType, false), false)
            .add("allocated", DataTypes.createArrayType(DataTypes.LongType, false), false);

    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    private interface Reading {
        /** Reads a push and returns the number of steps. */
        long steps();
    }

    private Cost() {}

    /**
     * Returns one element for each of otlp_entries, otlp_histograms, otlp_series and
     * otlp_data_points.
     */
    public static InternalRow read(
            byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan, IdKey key) {
        Plan parsed = Plan.of(plan);
        Reading[] readings = {
            () -> Entries.steps(otlp, instance, receivedAtNs, parsed, key),
            () -> Histograms.steps(otlp, instance, receivedAtNs, parsed, key),
            () -> Series.steps(otlp, instance, receivedAtNs, parsed, key),
            () -> DataPoints.steps(otlp),
        };
        long[] steps = new long[readings.length];
        long[] allocated = new long[readings.length];
        for (int index = 0; index < readings.length; index++) {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            steps[index] = readings[index].steps();
            allocated[index] = THREADS.getCurrentThreadAllocatedBytes() - before;
        }
        return new GenericInternalRow(new Object[] {new GenericArrayData(steps), new GenericArrayData(allocated)});
    }
}
