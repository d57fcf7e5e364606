package kafkaclienttelemetry.rollup;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** {@code otlp_series}: the dimensions and hashes of the series in a push. */
public final class Series extends RollUp {
    static final DataType TYPE = DataTypes.createArrayType(
            new StructType()
                    .add("series_high", DataTypes.LongType, false)
                    .add("series_low", DataTypes.LongType, false)
                    .add("metric", DataTypes.StringType, false)
                    .add("cluster_id", DataTypes.StringType, true)
                    .add("client_software_name", DataTypes.StringType, true)
                    .add("client_software_version", DataTypes.StringType, true)
                    .add("client_id", DataTypes.StringType, true)
                    .add("principal", DataTypes.StringType, true)
                    .add("group_id", DataTypes.StringType, true)
                    .add("topic", DataTypes.StringType, true)
                    .add("node_id", DataTypes.StringType, true)
                    .add("node_role", DataTypes.StringType, true)
                    .add("reason", DataTypes.StringType, true)
                    .add("error", DataTypes.StringType, true)
                    .add("acks", DataTypes.StringType, true)
                    .add("partition", DataTypes.StringType, true)
                    .add("breakdown", DataTypes.BooleanType, false)
                    .add("rule", DataTypes.ByteType, false),
            false);

    private record Hash(long high, long low) {}

    private final Map<Hash, Object> rows = new LinkedHashMap<>();

    private Series(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        super(otlp, instance, receivedAtNs, plan, key);
    }

    /** Reads a push. A malformed push has no rows; {@code otlp_entries} has its error. */
    public static ArrayData read(
            byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan, IdKey key) {
        if (otlp == null) {
            return OtlpFunctions.NO_ROWS;
        }
        return new Series(otlp, instance, receivedAtNs, Plan.of(plan), key).rows();
    }

    static long steps(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan, IdKey key) {
        Series reader = new Series(otlp, instance, receivedAtNs, plan, key);
        reader.rows();
        return reader.in.steps();
    }

    private Series(Series first) {
        super(first);
    }

    private ArrayData rows() {
        try {
            if (run()) {
                Series second = new Series(this);
                ArrayData found = second.rows();
                in.count(second.in.steps());
                return found;
            }
        } catch (MalformedException problem) {
            return OtlpFunctions.NO_ROWS;
        }
        return new GenericArrayData(rows.values().toArray());
    }

    @Override
    void number(double value) {
        add();
    }

    @Override
    void cumulative(double value) {
        add();
    }

    @Override
    void histogram(long count) {
        add();
    }

    @Override
    void cumulativeHistogram() {
        add();
    }

    private void add() {
        rows.computeIfAbsent(
                new Hash(seriesHash.high, seriesHash.low),
                rowHash -> new GenericInternalRow(new Object[] {
                    rowHash.high,
                    rowHash.low,
                    name,
                    labels.get(Labels.CLUSTER_ID),
                    labels.get(Labels.CLIENT_SOFTWARE_NAME),
                    labels.get(Labels.CLIENT_SOFTWARE_VERSION),
                    labels.get(Labels.CLIENT_ID),
                    labels.get(Labels.PRINCIPAL),
                    labels.get(Labels.GROUP_ID),
                    topic,
                    nodeId,
                    nodeRole,
                    reason,
                    error,
                    acks,
                    partition,
                    isBreakdown,
                    rule,
                }));
    }
}
