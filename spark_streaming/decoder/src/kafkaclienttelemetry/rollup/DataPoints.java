package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** {@code otlp_data_points}: all data points of a push with all their fields. */
public final class DataPoints extends PushWalk {
    private static final MapType TEXTS = DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType, true);
    private static final ArrayType LONGS = DataTypes.createArrayType(DataTypes.LongType, false);
    private static final ArrayType DOUBLES = DataTypes.createArrayType(DataTypes.DoubleType, false);

    static final StructType TYPE = new StructType()
            .add("error", DataTypes.StringType, true)
            .add(
                    "points",
                    DataTypes.createArrayType(
                            new StructType()
                                    .add("resource", TEXTS, false)
                                    .add("scope", DataTypes.StringType, false)
                                    .add("metric", DataTypes.StringType, false)
                                    .add("unit", DataTypes.StringType, false)
                                    .add("type", DataTypes.StringType, false)
                                    .add("temporality", DataTypes.StringType, true)
                                    .add("monotonic", DataTypes.BooleanType, true)
                                    .add("time_ns", DataTypes.LongType, false)
                                    .add("start_ns", DataTypes.LongType, false)
                                    .add("recorded", DataTypes.BooleanType, false)
                                    .add("value", DataTypes.DoubleType, true)
                                    .add("count", DataTypes.LongType, true)
                                    .add("sum", DataTypes.DoubleType, true)
                                    .add("min", DataTypes.DoubleType, true)
                                    .add("max", DataTypes.DoubleType, true)
                                    .add("bounds", DOUBLES, true)
                                    .add("counts", LONGS, true)
                                    .add("scale", DataTypes.IntegerType, true)
                                    .add("zero_count", DataTypes.LongType, true)
                                    .add("zero_threshold", DataTypes.DoubleType, true)
                                    .add("positive_offset", DataTypes.IntegerType, true)
                                    .add("positive_counts", LONGS, true)
                                    .add("negative_offset", DataTypes.IntegerType, true)
                                    .add("negative_counts", LONGS, true)
                                    .add(
                                            "quantiles",
                                            DataTypes.createMapType(
                                                    DataTypes.DoubleType, DataTypes.DoubleType, false),
                                            true)
                                    .add("attributes", TEXTS, false),
                            false),
                    false);

    /** Bounds the output, because the resource is repeated for each of its points. */
    private static final long MAX_REPEATED_BYTES = 256L << 20;
    /** Bounds output by input. Real pushes repeat each byte about 30 times. */
    private static final long MAX_REPETITION = 256;

    private static final UTF8String DELTAS = UTF8String.fromString("delta");
    private static final UTF8String CUMULATIVES = UTF8String.fromString("cumulative");

    private final List<Object> rows = new ArrayList<>();
    private Map<UTF8String, UTF8String> resource;
    private ArrayBasedMapData resourceMap;
    private long resourceBytes;
    private final long maxRepeatedBytes;
    private long repeatedBytes;
    private UTF8String scopeName;
    private Map<UTF8String, UTF8String> attributes;

    private DataPoints(byte[] otlp) {
        super(otlp);
        maxRepeatedBytes = Math.min(MAX_REPEATED_BYTES, (1L << 20) + MAX_REPETITION * otlp.length);
    }

    /** Reads a push. The error of a malformed push contains the position. */
    public static InternalRow read(byte[] otlp) {
        if (otlp == null) {
            return OtlpFunctions.error("the payload is missing");
        }
        return new DataPoints(otlp).rows();
    }

    static long steps(byte[] otlp) {
        DataPoints reader = new DataPoints(otlp);
        reader.rows();
        return reader.in.steps();
    }

    private InternalRow rows() {
        try {
            walk();
        } catch (MalformedException problem) {
            return OtlpFunctions.error(problem.getMessage());
        } catch (RuntimeException | StackOverflowError bug) {
            return OtlpFunctions.error(OtlpFunctions.bug(bug));
        }
        return new GenericInternalRow(new Object[] {null, new GenericArrayData(rows.toArray())});
    }

    @Override
    void beginResource() throws MalformedException {
        resource = new LinkedHashMap<>();
        resourceBytes = 0;
        readResource();
        resourceMap = map(resource);
    }

    @Override
    void resourceAttribute() {
        UTF8String text = attribute.text();
        resourceBytes += attribute.key().numBytes() + (text == null ? 0 : text.numBytes());
        resource.put(attribute.key(), text);
    }

    @Override
    void beginScope() throws MalformedException {
        scopeName = UTF8String.EMPTY_UTF8;
        int end = in.limit();
        for (int index = 0; index < scope.size(); index++) {
            in.enter(scope.from(index), scope.to(index));
            while (in.next()) {
                if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                    scopeName = in.text();
                } else {
                    in.skip();
                }
            }
        }
        in.enter(end, end);
    }

    @Override
    void beginMetric() {}

    @Override
    void beginPoint() {
        attributes = new LinkedHashMap<>();
    }

    @Override
    public void pointAttribute() throws MalformedException {
        attribute.read();
        attributes.put(attribute.key(), attribute.text());
    }

    @Override
    void endPoint() throws MalformedException {
        repeatedBytes += resourceBytes + scopeName.numBytes() + name.numBytes() + unit.numBytes();
        if (repeatedBytes > maxRepeatedBytes) {
            throw new MalformedException(
                    "the data points with their resources take more than " + maxRepeatedBytes + " bytes");
        }
        boolean isNumber = type == MetricType.GAUGE || type == MetricType.SUM;
        boolean isHistogram = type == MetricType.HISTOGRAM;
        boolean isExponential = type == MetricType.EXPONENTIAL_HISTOGRAM;
        boolean isSummary = type == MetricType.SUMMARY;
        rows.add(new GenericInternalRow(new Object[] {
            resourceMap,
            scopeName,
            name,
            unit,
            type.text,
            type.hasTemporality() ? temporality() : null,
            type == MetricType.SUM ? isMonotonic : null,
            point.timeNs,
            point.startNs,
            point.isRecorded(),
            isNumber && point.hasValue ? point.value : null,
            isNumber ? null : (Object) point.count,
            !isNumber && point.hasSum ? point.sum : null,
            !isNumber && point.hasMin ? point.min : null,
            !isNumber && point.hasMax ? point.max : null,
            isHistogram ? new GenericArrayData(point.bounds.toDoubles()) : null,
            isHistogram ? new GenericArrayData(point.counts.toArray()) : null,
            isExponential ? point.scale : null,
            isExponential ? point.zeroCount : null,
            isExponential ? point.zeroThreshold : null,
            isExponential ? point.positive.offset : null,
            isExponential ? new GenericArrayData(point.positive.counts.toArray()) : null,
            isExponential ? point.negative.offset : null,
            isExponential ? new GenericArrayData(point.negative.counts.toArray()) : null,
            isSummary ? quantiles() : null,
            map(attributes),
        }));
    }

    private UTF8String temporality() {
        return switch (temporality) {
            case DELTA -> DELTAS;
            case CUMULATIVE -> CUMULATIVES;
            default -> null;
        };
    }

    private ArrayBasedMapData quantiles() {
        Map<Double, Double> values = new LinkedHashMap<>();
        for (int index = 0; index < point.quantiles.size(); index++) {
            // Adding 0 turns -0 into 0, because they are one key for SQL.
            values.put(point.quantiles.getDouble(index) + 0.0, point.quantileValues.getDouble(index));
        }
        return map(values);
    }

    private static ArrayBasedMapData map(Map<?, ?> values) {
        return new ArrayBasedMapData(
                new GenericArrayData(values.keySet().toArray()), new GenericArrayData(values.values().toArray()));
    }
}
