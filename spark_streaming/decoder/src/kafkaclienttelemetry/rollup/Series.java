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

/** {@code otlp_series}: what the ids of a push's series stand for. */
public final class Series extends RollUp {
    static final DataType TYPE = DataTypes.createArrayType(
            new StructType()
                    .add("series_id", DataTypes.LongType, false)
                    .add("fleet_id", DataTypes.LongType, false)
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
                    .add("breakdown", DataTypes.BooleanType, false)
                    .add("rule", DataTypes.ByteType, false),
            false);

    private final Map<Long, Object> rows = new LinkedHashMap<>();

    private Series(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan) {
        super(otlp, instance, receivedAtNs, plan);
    }

    /** Reads a push; one that is not sound has no series, and {@code otlp_entries} says why. */
    public static ArrayData read(byte[] otlp, UTF8String instance, long receivedAtNs, UTF8String plan) {
        if (otlp == null) {
            return OtlpFunctions.NO_ROWS;
        }
        return new Series(otlp, instance, receivedAtNs, Plan.of(plan)).rows();
    }

    static long steps(byte[] otlp, UTF8String instance, long receivedAtNs, Plan plan) {
        Series reader = new Series(otlp, instance, receivedAtNs, plan);
        reader.rows();
        return reader.in.steps();
    }

    private ArrayData rows() {
        try {
            run();
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

    private void add() {
        rows.computeIfAbsent(
                seriesId(),
                id -> new GenericInternalRow(new Object[] {
                    id,
                    fleetId,
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
                    isBreakdown,
                    rule,
                }));
    }
}
