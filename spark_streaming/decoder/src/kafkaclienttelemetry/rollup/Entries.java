package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * {@code otlp_entries}: the entries of a push, one for each client instance and time.
 *
 * <p>{@code describes} says whether the push has series that {@code otlp_series} must describe,
 * because this JVM has not asked for their dimensions before.
 */
public final class Entries extends RollUp {
    static final StructType TYPE = new StructType()
            .add("error", DataTypes.StringType, true)
            .add("entries", DataTypes.createArrayType(entryType(), false), false)
            .add("fallback", DataTypes.StringType, true)
            .add("describes", DataTypes.BooleanType, false);

    private static final int BREAKDOWN = 16;
    /** Which part of a cumulative histogram a value is. */
    private static final int COUNT = 32;
    private static final int SUM = 64;
    private static final int BUCKET = 96;
    private static final byte[] NO_BYTES = {};

    private final KnownSeries known;

    private Entries(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        super(otlp, instance, receivedAtNs, plan, key);
        known = KnownSeries.of(key);
    }

    private Entries(Entries first) {
        super(first);
        known = first.known;
    }

    private static StructType entryType() {
        StructType type = new StructType()
                .add("time_ns", DataTypes.LongType, false)
                .add("minute", DataTypes.LongType, false);
        for (String label : Labels.NAMES) {
            type = type.add(label, DataTypes.StringType, !label.equals(Labels.NAMES[Labels.CLIENT_INSTANCE_ID]));
        }
        return type.add("pushes", DataTypes.IntegerType, false)
                .add("points", DataTypes.IntegerType, false)
                .add("left_out", DataTypes.IntegerType, false)
                .add("histograms", DataTypes.IntegerType, false)
                .add("gauges", DataTypes.BinaryType, false)
                .add("added", DataTypes.BinaryType, false)
                .add("cumulative", DataTypes.BinaryType, false)
                .add("cumulative_histograms", DataTypes.BinaryType, false)
                .add("watched", DataTypes.createArrayType(DataTypes.DoubleType, true), false);
    }

    /** Reads a push. The error of a malformed push contains the position. */
    public static InternalRow read(
            byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan, IdKey key) {
        if (otlp == null) {
            return error("the payload is missing");
        }
        return new Entries(otlp, instance, receivedAtNs, Plan.of(plan), key).rows(instance);
    }

    static long steps(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        Entries reader = new Entries(otlp, instance, receivedAtNs, plan, key);
        reader.rows(instance);
        return reader.in.steps();
    }

    private InternalRow rows(UTF8String instance) {
        try {
            if (run()) {
                Entries second = new Entries(this);
                InternalRow row = second.rows(instance);
                in.count(second.in.steps());
                return row;
            }
        } catch (MalformedException problem) {
            return error(problem.getMessage());
        } catch (RuntimeException | StackOverflowError bug) {
            return error(OtlpFunctions.bug(bug));
        }
        // The instance of a push without entries, in the same form as in entries.
        boolean isNamed = instance != null && instance.numBytes() > 0;
        UTF8String fallback = isNamed ? Text.storableOfAnyBytes(instance, key) : null;
        List<Object> rows = new ArrayList<>();
        for (Entry each : entries()) {
            rows.add(row(each, plan.slots.length));
        }
        boolean describes = !known.containsAll(series);
        if (describes) {
            known.addAll(series);
        }
        return new GenericInternalRow(
                new Object[] {null, new GenericArrayData(rows.toArray()), fallback, describes});
    }

    private static InternalRow error(String problem) {
        return new GenericInternalRow(
                new Object[] {UTF8String.fromString(problem), OtlpFunctions.NO_ROWS, null, false});
    }

    private static InternalRow row(Entry entry, int slots) {
        List<Object> values = new ArrayList<>(TYPE.length());
        values.add(entry.timeNs);
        values.add(entry.minute);
        for (int label = 0; label < Labels.NAMES.length; label++) {
            values.add(entry.labels.get(label));
        }
        values.add(entry.isFirst ? 1 : 0);
        values.add(entry.points);
        values.add(entry.leftOut);
        values.add(entry.histograms);
        for (PackedColumns columns :
                new PackedColumns[] {entry.gauges, entry.added, entry.cumulative, entry.cumulativeHistograms}) {
            values.add(columns == null ? NO_BYTES : columns.toBytes());
        }
        Object[] watched = new Object[slots];
        for (int slot = 0; entry.watched != null && slot < slots; slot++) {
            watched[slot] = Double.isNaN(entry.watched[slot]) ? null : (Object) entry.watched[slot];
        }
        values.add(new GenericArrayData(watched));
        return new GenericInternalRow(values.toArray());
    }

    @Override
    void number(double value) {
        PackedColumns columns;
        if (rule == Rule.RATE || rule == Rule.LAST || rule == Rule.DISTRIBUTION) {
            columns = entry.gauges = entry.gauges == null ? new PackedColumns(3) : entry.gauges;
        } else {
            columns = entry.added = entry.added == null ? new PackedColumns(3) : entry.added;
        }
        columns.add(flags(), seriesHash.high, seriesHash.low, Double.doubleToRawLongBits(value));
        if (!isBreakdown) {
            for (int slot : metric.slots()) {
                watch(slot, value);
            }
        }
    }

    @Override
    void cumulative(double value) {
        if (entry.cumulative == null) {
            entry.cumulative = new PackedColumns(7);
        }
        SipHash identity = identityHash();
        entry.cumulative.add(
                flags(),
                seriesHash.high,
                seriesHash.low,
                identity.high,
                identity.low,
                point.startNs,
                entry.timeNs,
                Double.doubleToRawLongBits(value));
    }

    @Override
    void histogram(long count) {
        entry.histograms++;
    }

    @Override
    void cumulativeHistogram() {
        if (entry.cumulativeHistograms == null) {
            entry.cumulativeHistograms = new PackedColumns(9);
        }
        SipHash histogram = identityHash();
        part(COUNT, histogram, 0, 0, point.count);
        boolean hasSum = point.hasSum && Value.isMeasured(point.sum);
        part(SUM, partHash(histogram, SUM, 0, 0), 0, 0, hasSum ? Value.storable(point.sum) : Double.NaN);
        ArrayData buckets =
                type == MetricType.HISTOGRAM ? Buckets.explicit(point) : Buckets.exponential(point);
        in.count(buckets.numElements());
        for (int index = 0; index < buckets.numElements(); index++) {
            InternalRow bucket = buckets.getStruct(index, Buckets.TYPE.length());
            long lower = Double.doubleToRawLongBits(bucket.getDouble(0));
            long upper = Double.doubleToRawLongBits(bucket.getDouble(1));
            part(BUCKET, partHash(histogram, BUCKET, lower, upper), lower, upper, bucket.getLong(2));
        }
    }

    private void part(int part, SipHash identity, long lower, long upper, double value) {
        entry.cumulativeHistograms.add(
                flags() | part,
                seriesHash.high,
                seriesHash.low,
                identity.high,
                identity.low,
                point.startNs,
                entry.timeNs,
                lower,
                upper,
                Double.doubleToRawLongBits(value));
    }

    private int flags() {
        return rule | (isBreakdown ? BREAKDOWN : 0);
    }

    private void watch(int slot, double value) {
        if (entry.watched == null) {
            entry.watched = new double[plan.slots.length];
            Arrays.fill(entry.watched, Double.NaN);
        }
        double before = entry.watched[slot];
        boolean isFirst = Double.isNaN(before);
        entry.watched[slot] = switch (plan.slots[slot]) {
            case SUM -> isFirst ? value : before + value;
            case MAX -> isFirst ? value : Math.max(before, value);
            case POINTS -> isFirst ? 1 : before + 1;
        };
    }
}
