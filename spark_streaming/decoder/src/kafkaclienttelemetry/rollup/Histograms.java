package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** {@code otlp_histograms}: the histograms and summaries of a push, by minute and series. */
public final class Histograms extends RollUp {
    static final DataType TYPE = DataTypes.createArrayType(
            new StructType()
                    .add("minute", DataTypes.LongType, false)
                    .add("series_high", DataTypes.LongType, false)
                    .add("series_low", DataTypes.LongType, false)
                    .add("breakdown", DataTypes.BooleanType, false)
                    .add("points", DataTypes.LongType, false)
                    .add("sum", DataTypes.DoubleType, true)
                    .add("min", DataTypes.DoubleType, true)
                    .add("max", DataTypes.DoubleType, true)
                    .add("buckets", DataTypes.createArrayType(Buckets.TYPE, false), true),
            false);

    private final List<Object> rows = new ArrayList<>();

    private Histograms(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        super(otlp, instance, receivedAtNs, plan, key);
    }

    /** Reads a push. A malformed push has no rows; {@code otlp_entries} has its error. */
    public static ArrayData read(
            byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan, IdKey key) {
        if (otlp == null) {
            return OtlpFunctions.NO_ROWS;
        }
        return new Histograms(otlp, instance, receivedAtNs, Plan.of(plan), key).rows();
    }

    static long steps(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        Histograms reader = new Histograms(otlp, instance, receivedAtNs, plan, key);
        reader.rows();
        return reader.in.steps();
    }

    private Histograms(Histograms first) {
        super(first);
    }

    private ArrayData rows() {
        try {
            if (run()) {
                Histograms second = new Histograms(this);
                ArrayData found = second.rows();
                in.count(second.in.steps());
                return found;
            }
        } catch (MalformedException problem) {
            return OtlpFunctions.NO_ROWS;
        }
        return new GenericArrayData(rows.toArray());
    }

    @Override
    void number(double value) {
        // Numbers are in otlp_entries.
    }

    @Override
    void cumulative(double value) {
        // Cumulative sums are in otlp_entries.
    }

    @Override
    void histogram(long count) {
        ArrayData buckets = switch (type) {
            case HISTOGRAM -> Buckets.explicit(point);
            case EXPONENTIAL_HISTOGRAM -> Buckets.exponential(point);
            default -> null;
        };
        rows.add(new GenericInternalRow(new Object[] {
            entry.minute,
            seriesHash.high,
            seriesHash.low,
            isBreakdown,
            count,
            orNull(point.hasSum, point.sum),
            orNull(point.hasMin, point.min),
            orNull(point.hasMax, point.max),
            buckets,
        }));
    }

    @Override
    void cumulativeHistogram() {
        // Cumulative histograms are in otlp_entries.
    }

    private static Object orNull(boolean isThere, double value) {
        return isThere && Value.isMeasured(value) ? Value.storable(value) : null;
    }
}
