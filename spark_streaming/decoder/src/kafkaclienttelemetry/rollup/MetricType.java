package kafkaclienttelemetry.rollup;

import java.util.Locale;
import org.apache.spark.unsafe.types.UTF8String;

/** OTLP metric types. */
enum MetricType {
    GAUGE,
    SUM,
    HISTOGRAM,
    EXPONENTIAL_HISTOGRAM,
    SUMMARY;

    /** Name of the field in {@code Metric.data}. */
    final UTF8String text = UTF8String.fromString(name().toLowerCase(Locale.ROOT));

    boolean hasTemporality() {
        return this == SUM || this == HISTOGRAM || this == EXPONENTIAL_HISTOGRAM;
    }

    /** Returns the type whose field in Metric has this tag, or null. */
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
