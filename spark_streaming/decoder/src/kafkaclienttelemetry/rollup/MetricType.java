package kafkaclienttelemetry.rollup;

import java.util.Locale;
import org.apache.spark.unsafe.types.UTF8String;

/** OTLP's types of metrics. */
enum MetricType {
    GAUGE,
    SUM,
    HISTOGRAM,
    EXPONENTIAL_HISTOGRAM,
    SUMMARY;

    /** Named as in {@code Metric.data}. */
    final UTF8String text = UTF8String.fromString(name().toLowerCase(Locale.ROOT));

    boolean hasTemporality() {
        return this == SUM || this == HISTOGRAM || this == EXPONENTIAL_HISTOGRAM;
    }

    /** The type whose field of Metric has this tag; null where none has. */
    static MetricType of(int tag) {
        return switch (tag) {
            case 5 << 3 | WireReader.BYTES -> GAUGE;
            case 7 << 3 | WireReader.BYTES -> SUM;
            case 9 << 3 | WireReader.BYTES -> HISTOGRAM;
            case 10 << 3 | WireReader.BYTES -> EXPONENTIAL_HISTOGRAM;
            case 11 << 3 | WireReader.BYTES -> SUMMARY;
            default -> null;
        };
    }
}
