package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Non-empty buckets of a histogram, with bounds that all clients share, so that counts can be
 * added.
 */
final class Buckets {
    static final StructType TYPE = new StructType()
            .add("lower", DataTypes.DoubleType, false)
            .add("upper", DataTypes.DoubleType, false)
            .add("count", DataTypes.LongType, false);

    /**
     * Finer exponential histograms are reduced to this scale, so that clients have common buckets.
     */
    static final int MAX_SCALE = 3;
    /** Exponents of a double. Bounds beyond them are clamped. */
    private static final double MIN_EXPONENT = -1022;
    private static final double MAX_EXPONENT = 1024;

    private final List<Object> rows = new ArrayList<>();
    private double lower;
    private double upper;
    private long count;

    private Buckets() {}

    /** Returns the buckets of an explicit histogram; none if bounds and counts do not match. */
    static ArrayData explicit(DataPoint point) {
        Buckets buckets = new Buckets();
        int size = point.bounds.size();
        if (point.counts.size() == size + 1 && areBounds(point.bounds)) {
            for (int index = 0; index <= size; index++) {
                buckets.add(
                        index == 0 ? Double.NEGATIVE_INFINITY : bound(point.bounds, index - 1),
                        index == size ? Double.POSITIVE_INFINITY : bound(point.bounds, index),
                        point.counts.get(index));
            }
        }
        return buckets.toArray();
    }

    private static double bound(Longs bounds, int index) {
        return bounds.getDouble(index) + 0.0; // turns -0 into 0, because they are one key for PostgreSQL
    }

    private static boolean areBounds(Longs bounds) {
        double before = Double.NEGATIVE_INFINITY;
        for (int index = 0; index < bounds.size(); index++) {
            double bound = bounds.getDouble(index);
            if (!(bound > before) || !Value.isMeasured(bound)) {
                return false;
            }
            before = bound;
        }
        return true;
    }

    /** Returns the buckets of an exponential histogram in ascending order. */
    static ArrayData exponential(DataPoint point) {
        Buckets buckets = new Buckets();
        int finer = point.scale > MAX_SCALE ? point.scale - MAX_SCALE : 0;
        int scale = point.scale - finer;
        for (int index = point.negative.counts.size() - 1; index >= 0; index--) {
            long bucket = bucket(point.negative, index, finer);
            buckets.add(-bound(bucket + 1, scale), -bound(bucket, scale), point.negative.counts.get(index));
        }
        double threshold = point.zeroThreshold > 0 && Value.isMeasured(point.zeroThreshold)
                ? point.zeroThreshold
                : 0;
        buckets.add(0 - threshold, threshold, point.zeroCount);
        for (int index = 0; index < point.positive.counts.size(); index++) {
            long bucket = bucket(point.positive, index, finer);
            buckets.add(bound(bucket, scale), bound(bucket + 1, scale), point.positive.counts.get(index));
        }
        return buckets.toArray();
    }

    private static long bucket(DataPoint.Side side, int index, int finer) {
        // An index has about 32 bits, so a shift by 63 leaves only its sign.
        return (long) side.offset + index >> Math.min(finer, Long.SIZE - 1);
    }

    /** Returns a bucket's lower bound. StrictMath gives the same bound on every machine. */
    private static double bound(long bucket, int scale) {
        double exponent = Math.scalb((double) bucket, -Math.max(scale, -2000));
        return StrictMath.pow(2, Math.max(MIN_EXPONENT, Math.min(exponent, MAX_EXPONENT)));
    }

    private void add(double from, double to, long counted) {
        if (counted == 0) {
            return;
        }
        if (count != 0 && from == lower && to == upper) {
            count += counted;
            return;
        }
        flush();
        lower = from;
        upper = to;
        count = counted;
    }

    private void flush() {
        if (count != 0) {
            rows.add(new GenericInternalRow(new Object[] {lower, upper, count}));
        }
    }

    private ArrayData toArray() {
        flush();
        return new GenericArrayData(rows.toArray());
    }
}
