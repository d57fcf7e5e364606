package kafkaclienttelemetry.rollup;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** A row of {@code otlp_points}, without a box for each number: there is one for each data point. */
final class RollupRow extends GenericInternalRow {
    private static final long serialVersionUID = 1L;

    static final StructType TYPE = new StructType()
            .add("minute", DataTypes.LongType, false)
            .add("series_id", DataTypes.LongType, false)
            .add("fleet_id", DataTypes.LongType, false)
            .add("breakdown", DataTypes.BooleanType, false)
            .add("spread", DataTypes.ShortType, true)
            .add("points", DataTypes.LongType, false)
            .add("sum", DataTypes.DoubleType, false)
            .add("min", DataTypes.DoubleType, true)
            .add("max", DataTypes.DoubleType, true)
            .add("observations", DataTypes.LongType, false)
            .add("buckets", DataTypes.createArrayType(Buckets.TYPE, false), true);

    private static final Object[] NOT_BOXED = {};

    private final long minute;
    private final long seriesId;
    private final long fleetId;
    private final boolean isBreakdown;
    private final boolean isSpread;
    private final short spread;
    private final long points;
    private final double sum;
    /** NaN where there is none; so the maximum. */
    private final double min;
    private final double max;
    private final transient ArrayData buckets;

    /** A number's row. */
    RollupRow(RollUp of, double value) {
        this(of, 1, value, value, value, of.rule == Rule.DISTRIBUTION, null);
    }

    /** A histogram's row. */
    RollupRow(RollUp of, long points, double sum, double min, double max, ArrayData buckets) {
        this(of, points, sum, min, max, false, buckets);
    }

    private RollupRow(
            RollUp of, long points, double sum, double min, double max, boolean isSpread, ArrayData buckets) {
        super(NOT_BOXED);
        this.minute = of.entry.minute;
        this.seriesId = of.seriesId();
        this.fleetId = of.fleetId;
        this.isBreakdown = of.isBreakdown;
        this.isSpread = isSpread;
        this.spread = isSpread ? Spread.bucket(sum) : 0;
        this.points = points;
        this.sum = sum;
        this.min = min;
        this.max = max;
        this.buckets = buckets;
    }

    @Override
    public int numFields() {
        return TYPE.length();
    }

    @Override
    public boolean isNullAt(int ordinal) {
        return switch (ordinal) {
            case 4 -> !isSpread;
            case 7 -> Double.isNaN(min);
            case 8 -> Double.isNaN(max);
            case 10 -> buckets == null;
            default -> false;
        };
    }

    @Override
    public long getLong(int ordinal) {
        return switch (ordinal) {
            case 0 -> minute;
            case 1 -> seriesId;
            case 2 -> fleetId;
            case 5 -> points;
            default -> isSpread ? 1 : 0;
        };
    }

    @Override
    public double getDouble(int ordinal) {
        return switch (ordinal) {
            case 6 -> sum;
            case 7 -> min;
            default -> max;
        };
    }

    @Override
    public boolean getBoolean(int ordinal) {
        return isBreakdown;
    }

    @Override
    public short getShort(int ordinal) {
        return spread;
    }

    @Override
    public ArrayData getArray(int ordinal) {
        return buckets;
    }

    @Override
    public Object genericGet(int ordinal) {
        if (isNullAt(ordinal)) {
            return null;
        }
        return switch (ordinal) {
            case 3 -> isBreakdown;
            case 4 -> spread;
            case 6, 7, 8 -> getDouble(ordinal);
            case 10 -> buckets;
            default -> getLong(ordinal);
        };
    }

    @Override
    public GenericInternalRow copy() {
        Object[] values = new Object[numFields()];
        for (int ordinal = 0; ordinal < values.length; ordinal++) {
            values[ordinal] = InternalRow.copyValue(genericGet(ordinal));
        }
        return new GenericInternalRow(values);
    }

    @Override
    public void setNullAt(int ordinal) {
        throw new UnsupportedOperationException("a row that was read does not change");
    }

    @Override
    public void update(int ordinal, Object value) {
        throw new UnsupportedOperationException("a row that was read does not change");
    }
}
