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

/** What the roll-up wants of a push: the catalogue's rules, which times are believed, what is kept by instance. */
final class Plan {
    private static final int VERSION = 1;

    /** What a slot of the instance's own columns keeps. */
    enum Keeps { SUM, MAX, POINTS }

    /**
     * What is known of one metric.
     *
     * @param code the catalogue's rule, -1 where the catalogue has no such metric
     * @param finer attributes that only points of a finer level have, which count the same once more
     * @param slots in which slots its points are kept by instance
     */
    record Metric(byte code, byte[][] finer, int[] slots) {
        static final Metric UNKNOWN = new Metric((byte) -1, new byte[0][], new int[0]);
    }

    /** One plan for each thread, as a query has one: told by the text's identity, it costs nothing. */
    private static final ThreadLocal<Plan> NEWEST = new ThreadLocal<>();

    final long maxAheadNs;
    final long maxBehindNs;
    final long minMinute;
    /** The greatest magnitude of a measured value. */
    final double maxValue;
    /** The most that the counts of one push's histograms, and of their buckets, add up to. */
    final long maxCount;
    final Keeps[] slots;
    private final UTF8String text;
    private final Map<UTF8String, Metric> metrics = new HashMap<>();

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
        List<Keeps> keeps = new ArrayList<>();
        Map<String, List<Integer>> slotsOf = new HashMap<>();
        for (JsonNode slot : plan.path("watched")) {
            for (JsonNode metric : slot.path("metrics")) {
                slotsOf.computeIfAbsent(metric.asText(), name -> new ArrayList<>()).add(keeps.size());
            }
            keeps.add(Keeps.valueOf(slot.path("keeps").asText().toUpperCase(Locale.ROOT)));
        }
        slots = keeps.toArray(new Keeps[0]);
        plan.path("metrics").properties().forEach(entry -> {
            List<byte[]> finer = new ArrayList<>();
            for (JsonNode attribute : entry.getValue().path("finer")) {
                finer.add(attribute.asText().getBytes(StandardCharsets.UTF_8));
            }
            int[] kept = slotsOf.getOrDefault(entry.getKey(), List.of()).stream()
                    .mapToInt(Integer::intValue)
                    .toArray();
            byte code = (byte) number(entry.getValue(), "rule");
            metrics.put(UTF8String.fromString(entry.getKey()), new Metric(code, finer.toArray(new byte[0][]), kept));
        });
    }

    /**
     * Reads a plan, or takes the one that was read before.
     *
     * @throws IllegalArgumentException if the text is no plan
     */
    static Plan of(UTF8String text) {
        Plan newest = NEWEST.get();
        if (newest == null || newest.text != text && !newest.text.equals(text)) {
            newest = parse(text);
            NEWEST.set(newest);
        }
        return newest;
    }

    private static Plan parse(UTF8String text) {
        try {
            JsonNode plan = new ObjectMapper().readTree(text == null ? "null" : text.toString());
            if (plan.path("version").asInt() != VERSION) {
                throw new IllegalArgumentException("version is not " + VERSION);
            }
            return new Plan(text.copy(), plan);
        } catch (JsonProcessingException | IllegalArgumentException problem) {
            throw new IllegalArgumentException(
                    "the plan is not one that spark_streaming.catalogue.plan makes: " + problem.getMessage(), problem);
        }
    }

    private static long number(JsonNode node, String name) {
        JsonNode number = node.path(name);
        if (!number.canConvertToLong()) {
            throw new IllegalArgumentException(name + " is no whole number");
        }
        return number.asLong();
    }

    Metric metric(UTF8String name) {
        return metrics.getOrDefault(name, Metric.UNKNOWN);
    }
}
