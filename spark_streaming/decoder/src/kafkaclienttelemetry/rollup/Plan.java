package kafkaclienttelemetry.rollup;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Parameters of the roll-up: rules of metrics, bounds of times and values, values by instance. */
final class Plan {
    private static final int VERSION = 1;

    /** Aggregation of a slot of values by instance. */
    enum Keeps { SUM, MAX, POINTS }

    /**
     * One metric of the catalogue.
     *
     * @param code the catalogue's rule, or -1 for a metric that is not in the catalogue
     * @param finer attributes that only points of finer levels have, which count the same things
     *     again
     * @param slots slots of values by instance to which its points are added
     */
    record Metric(byte code, byte[][] finer, int[] slots) {
        static final Metric UNKNOWN = new Metric((byte) -1, new byte[0][], new int[0]);
    }

    /**
     * Last plan of each thread. A query has one plan, which is found by the identity of its text.
     */
    private static final ThreadLocal<Plan> LAST_PARSED = new ThreadLocal<>();

    final long maxAheadNs;
    final long maxBehindNs;
    final long minMinute;
    /** Greatest magnitude of a value. */
    final double maxValue;
    /** Greatest sum of the counts of a push's histograms, and of their buckets. */
    final long maxCount;
    /** Partitions from this one on are one series, named "other". 0: partitions are no dimension. */
    final long maxPartitions;
    final Keeps[] slots;
    private final UTF8String text;
    private final MetricTable metrics;

    private Plan(UTF8String text, JsonNode plan) {
        this.text = text;
        maxAheadNs = number(plan, "max_ahead_ns");
        maxBehindNs = number(plan, "max_behind_ns");
        minMinute = plan.path("min_minute").isNull() ? Long.MIN_VALUE : number(plan, "min_minute");
        maxValue = plan.path("max_value").asDouble(Double.NaN);
        if (!(maxValue > 0)) {
            throw new IllegalArgumentException("max_value is not a positive number");
        }
        maxCount = number(plan, "max_count");
        maxPartitions = number(plan, "max_partitions");
        List<Keeps> keeps = new ArrayList<>();
        Map<String, List<Integer>> slotsByMetric = new HashMap<>();
        for (JsonNode slot : plan.path("watched")) {
            for (JsonNode metric : slot.path("metrics")) {
                slotsByMetric.computeIfAbsent(metric.asText(), name -> new ArrayList<>()).add(keeps.size());
            }
            keeps.add(Keeps.valueOf(slot.path("keeps").asText().toUpperCase(Locale.ROOT)));
        }
        slots = keeps.toArray(new Keeps[0]);
        Map<UTF8String, Metric> byName = new HashMap<>();
        plan.path("metrics").properties().forEach(entry -> {
            List<byte[]> finer = new ArrayList<>();
            for (JsonNode attribute : entry.getValue().path("finer")) {
                finer.add(attribute.asText().getBytes(StandardCharsets.UTF_8));
            }
            int[] slots = slotsByMetric.getOrDefault(entry.getKey(), List.of()).stream()
                    .mapToInt(Integer::intValue)
                    .toArray();
            byte code = (byte) number(entry.getValue(), "rule");
            byName.put(UTF8String.fromString(entry.getKey()), new Metric(code, finer.toArray(new byte[0][]), slots));
        });
        metrics = new MetricTable(byName);
    }

    /**
     * Returns the plan of a text, parsed or cached.
     *
     * @throws IllegalArgumentException if the text is not a plan
     */
    static Plan of(UTF8String text) {
        Plan last = LAST_PARSED.get();
        if (last == null || last.text != text && !last.text.equals(text)) {
            last = parse(text);
            LAST_PARSED.set(last);
        }
        return last;
    }

    private static Plan parse(UTF8String text) {
        try {
            JsonNode plan = new ObjectMapper().readTree(text == null ? "null" : text.toString());
            if (plan.path("version").asInt() != VERSION) {
                throw new IllegalArgumentException("unsupported version (supported: " + VERSION + ")");
            }
            return new Plan(text.copy(), plan);
        } catch (JsonProcessingException | IllegalArgumentException problem) {
            throw new IllegalArgumentException(
                    "invalid plan, expected one of spark_streaming.catalogue.plan: " + problem.getMessage(), problem);
        }
    }

    private static long number(JsonNode node, String name) {
        JsonNode number = node.path(name);
        if (!number.canConvertToLong()) {
            throw new IllegalArgumentException(name + " is not a whole number");
        }
        return number.asLong();
    }

    Metric metric(UTF8String name) {
        Metric found = metrics.get(name);
        return found == null ? Metric.UNKNOWN : found;
    }
}
