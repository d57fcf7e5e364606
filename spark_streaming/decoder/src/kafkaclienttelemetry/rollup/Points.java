package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** {@code otlp_points}: what a push adds to the roll-up of its minutes. */
public final class Points extends RollUp {
    static final DataType TYPE = DataTypes.createArrayType(RollupRow.TYPE, false);

    private final List<Object> rows = new ArrayList<>();

    private Points(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan) {
        super(otlp, instance, receivedAtNs, plan);
    }

    /** Reads a push; one that is not sound has no points, and {@code otlp_entries} says why. */
    public static ArrayData read(byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan) {
        if (otlp == null) {
            return OtlpFunctions.NO_ROWS;
        }
        Points points = new Points(otlp, instance, receivedAtNs, Plan.of(plan));
        try {
            points.run();
        } catch (MalformedException problem) {
            return OtlpFunctions.NO_ROWS;
        }
        return new GenericArrayData(points.rows.toArray());
    }

    @Override
    void number(double value) {
        rows.add(new RollupRow(this, value));
    }

    @Override
    void cumulative(double value) {
        // What it adds is known only beside the client's last push.
    }

    @Override
    void histogram(long count) {
        ArrayData buckets = switch (type) {
            case HISTOGRAM -> Buckets.explicit(point);
            case EXPONENTIAL_HISTOGRAM -> Buckets.exponential(point);
            default -> null;
        };
        rows.add(new RollupRow(
                this,
                count,
                point.hasSum && Value.counts(point.sum) ? Value.storable(point.sum) : 0,
                orNone(point.hasMin, point.min),
                orNone(point.hasMax, point.max),
                buckets));
    }

    private static double orNone(boolean isThere, double value) {
        return isThere && Value.counts(value) ? Value.storable(value) : Double.NaN;
    }
}
