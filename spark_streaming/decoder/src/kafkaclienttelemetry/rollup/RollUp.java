package kafkaclienttelemetry.rollup;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Visits the data points of a push with their entry, rule and series.
 *
 * <p>Points that the roll-up ignores (NaN, no recorded value) are only counted in their entry. A
 * push with a number beyond the plan's bounds is refused as a whole, because one such number could
 * drown a total, and thousands could exceed the range of its type.
 *
 * <p>A point that a push has twice counts once. Hardly a push has two points of one series, so
 * points are compared only in a second walk over such a push.
 */
abstract class RollUp extends PushWalk {
    /** Bounds memory, because an entry is far larger than the data point that creates it. */
    static final int MAX_ENTRIES = 128;

    /**
     * Points this close in time belong to one entry, even across the end of a minute, because Java
     * clients stamp each metric when they collect it, within milliseconds.
     */
    private static final long SAME_ENTRY_NS = 1_000_000_000L;

    private record Hash(long high, long low) {}

    private static final long MINUTE_NS = 60_000_000_000L;
    private static final UTF8String CLIENTS = UTF8String.fromString("kafka.client.telemetry.clients");
    private static final UTF8String PUSHES = UTF8String.fromString("kafka.client.telemetry.pushes");
    private static final byte[] TOPIC = "topic".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NODE_ID = "node_id".getBytes(StandardCharsets.US_ASCII);
    /** Name that clients send, if the receiver does not normalise it. */
    private static final byte[] RAW_NODE_ID = "node.id".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NODE_ROLE = "node_role".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] REASON = "reason".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] ERROR = "error".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] ACKS = "acks".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] PARTITION = "partition".getBytes(StandardCharsets.US_ASCII);

    final Plan plan;
    final IdKey key;
    final UTF8String fallbackInstance;
    final long receivedAtNs;
    /** First halves of the hashes of all points' series. */
    final Longs series = new Longs();
    /** The points so far, if the walk looks for repeated ones; else null. */
    private final Set<Hash> seen;

    private final List<Entry> entries = new ArrayList<>();
    private final Map<UTF8String, List<Entry>> entriesByInstance = new HashMap<>();
    private long totalCount;
    private long totalBucketCount;
    private List<Entry> instanceEntries;
    private Labels entryLabels;

    // The current resource, metric and point.
    Labels labels;
    Plan.Metric metric;
    byte rule;
    private boolean isCumulative;
    private boolean isIgnored;
    private final SipHash metricHash = new SipHash();
    private final SipHash pointHash = new SipHash();
    private final SipHash attributeHash = new SipHash();
    private final SipHash repeatHash = new SipHash();
    /** The hash of the current point's series: an object that is reused for all points. */
    SipHash seriesHash;
    Entry entry;
    UTF8String topic;
    UTF8String nodeId;
    UTF8String nodeRole;
    UTF8String reason;
    UTF8String error;
    UTF8String acks;
    UTF8String partition;
    boolean isBreakdown;
    private long attributesHigh;
    private long attributesLow;

    RollUp(byte[] otlp, UTF8String fallbackInstance, long receivedAtNs, Plan plan, IdKey key) {
        super(otlp);
        this.fallbackInstance = fallbackInstance;
        this.receivedAtNs = receivedAtNs;
        this.plan = plan;
        this.key = key;
        seen = null;
    }

    /** Begins a second walk, which leaves repeated points out. */
    RollUp(RollUp first) {
        super(first.in.bytes);
        fallbackInstance = first.fallbackInstance;
        receivedAtNs = first.receivedAtNs;
        plan = first.plan;
        key = first.key;
        seen = new HashSet<>();
    }

    /** Called for each gauge or delta, which combines by {@link #rule}. */
    abstract void number(double value);

    /** Called for each value of a monotonic cumulative sum, whose growth counts. */
    abstract void cumulative(double value);

    /** Called for each non-empty delta histogram or summary. */
    abstract void histogram(long count);

    /** Called for each cumulative histogram, whose growth counts. */
    abstract void cumulativeHistogram();

    /** Returns all entries in order of appearance. Those before the first minute have no values. */
    final List<Entry> entries() {
        return entries;
    }

    private boolean repeatsASeries() {
        long[] sorted = series.toArray();
        Arrays.sort(sorted);
        for (int index = 1; index < sorted.length; index++) {
            if (sorted[index] == sorted[index - 1]) {
                return true;
            }
        }
        return false;
    }

    /**
     * Visits the push, then one synthetic point for each client and push.
     *
     * @return whether the push may have a point twice. Then there are no synthetic points, and a
     *     second walk leaves the repeated ones out.
     */
    final boolean run() throws MalformedException {
        walk();
        if (seen == null && repeatsASeries()) {
            return true;
        }
        point.startNs = 0;
        for (Entry each : entries) {
            if (!each.isKept) {
                continue;
            }
            entry = each;
            labels = each.labels;
            synthetic(CLIENTS, Rule.LAST);
            if (each.isFirst) {
                synthetic(PUSHES, Rule.SUM);
            }
        }
        return false;
    }

    private void synthetic(UTF8String metricName, byte combines) {
        name = metricName;
        type = MetricType.GAUGE;
        rule = combines;
        metric = Plan.Metric.UNKNOWN;
        beginSeries();
        beginPoint();
        noteSeries();
        number(1);
    }

    @Override
    final void beginResource() throws MalformedException {
        labels = new Labels(key);
        readResource();
        labels.complete(fallbackInstance);
    }

    @Override
    final void resourceAttribute() {
        labels.put(attribute);
    }

    @Override
    final void beginMetric() {
        metric = plan.metric(name);
        if (metric == Plan.Metric.UNKNOWN) {
            // The catalogue's names are storable.
            name = Text.storable(name, key);
        }
        byte known = metric.code();
        isCumulative = false;
        isIgnored = false;
        switch (type) {
            case GAUGE -> {
                byte gauge = known < 0 ? Rule.bySuffix(name) : known;
                rule = gauge == Rule.SUM ? Rule.LAST : gauge;
            }
            case SUM -> {
                isCumulative = temporality == CUMULATIVE && isMonotonic;
                isIgnored = temporality != DELTA && temporality != CUMULATIVE;
                rule = temporality == CUMULATIVE && !isMonotonic ? Rule.LAST : Rule.SUM;
            }
            case HISTOGRAM, EXPONENTIAL_HISTOGRAM -> {
                isCumulative = temporality == CUMULATIVE;
                isIgnored = temporality != DELTA && temporality != CUMULATIVE;
                rule = Rule.DISTRIBUTION;
            }
            case SUMMARY -> rule = Rule.DISTRIBUTION;
        }
        // Clients must not send the metrics that the roll-up adds.
        isIgnored |= name.equals(CLIENTS) || name.equals(PUSHES);
        beginSeries();
    }

    private void beginSeries() {
        metricHash.resumeFrom(labels.series).text(name);
    }

    @Override
    final void beginPoint() {
        topic = null;
        nodeId = null;
        nodeRole = null;
        reason = null;
        error = null;
        acks = null;
        partition = null;
        isBreakdown = false;
        attributesHigh = 0;
        attributesLow = 0;
    }

    @Override
    public final void pointAttribute() throws MalformedException {
        attribute.read();
        if (attribute.hasKey(TOPIC)) {
            topic = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(NODE_ID) || attribute.hasKey(RAW_NODE_ID)) {
            nodeId = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(NODE_ROLE)) {
            nodeRole = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(REASON)) {
            reason = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(ERROR)) {
            error = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(ACKS)) {
            acks = Dimensions.acks(attribute.text());
        } else if (attribute.hasKey(PARTITION)) {
            partition = Dimensions.partition(attribute.text(), plan.maxPartitions);
        }
        for (byte[] finer : metric.finer()) {
            isBreakdown |= attribute.hasKey(finer);
        }
        if (isCumulative || seen != null) { // a sum, so that the order of attributes does not matter
            attributeHash
                    .begin(key, SipHash.ATTRIBUTE)
                    .text(attribute.key())
                    .text(attribute.text())
                    .finish();
            attributesHigh += attributeHash.high;
            attributesLow += attributeHash.low;
        }
    }

    @Override
    final void endPoint() throws MalformedException {
        entry = entry(point.timeNs);
        entry.points++;
        if (isIgnored || !point.isRecorded()) {
            return;
        }
        // Also for minutes that the plan ignores, because a rebuild must refuse the same pushes.
        checkBounds();
        if (!entry.isKept) {
            return;
        }
        boolean isNumber = type == MetricType.GAUGE || type == MetricType.SUM;
        if (isNumber ? !point.hasValue || !Value.isMeasured(point.value) : point.count == 0 && !isCumulative) {
            return;
        }
        if (type == MetricType.SUM && isMonotonic && point.value < 0) {
            entry.leftOut++;
            return;
        }
        noteSeries();
        if (isRepeated()) {
            entry.leftOut++;
        } else if (!isNumber && isCumulative) {
            cumulativeHistogram();
        } else if (!isNumber) {
            histogram(point.count);
        } else if (isCumulative) {
            cumulative(Value.storable(point.value));
        } else {
            number(Value.storable(point.value));
        }
    }

    private void noteSeries() {
        seriesHash = hashSeries();
        series.add(seriesHash.high);
    }

    private boolean isRepeated() {
        if (seen == null) {
            return false;
        }
        repeatHash
                .begin(key, SipHash.POINT)
                .word(seriesHash.high)
                .word(seriesHash.low)
                .word(attributesHigh)
                .word(attributesLow)
                .word(type.ordinal())
                .word(point.startNs)
                .word(point.timeNs);
        point.hash(type, repeatHash);
        repeatHash.finish();
        return !seen.add(new Hash(repeatHash.high, repeatHash.low));
    }

    private void checkBounds() throws MalformedException {
        switch (type) {
            case GAUGE, SUM -> checkValue(point.hasValue, "value", point.value);
            case HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY -> {
                checkValue(point.hasSum, "sum", point.sum);
                checkValue(point.hasMin, "min", point.min);
                checkValue(point.hasMax, "max", point.max);
                totalCount = checkedTotal(totalCount, point.count, "counts");
            }
        }
        switch (type) {
            case HISTOGRAM -> {
                for (int index = 0; index < point.bounds.size(); index++) {
                    checkValue(true, "bound", point.bounds.getDouble(index));
                }
                checkBuckets(point.counts);
            }
            case EXPONENTIAL_HISTOGRAM -> {
                checkValue(true, "zero threshold", point.zeroThreshold);
                checkBuckets(point.negative.counts);
                totalBucketCount = checkedTotal(totalBucketCount, point.zeroCount, "bucket counts");
                checkBuckets(point.positive.counts);
            }
            default -> {}
        }
    }

    private void checkBuckets(Longs counts) throws MalformedException {
        for (int index = 0; index < counts.size(); index++) {
            totalBucketCount = checkedTotal(totalBucketCount, counts.get(index), "bucket counts");
        }
        in.count(counts.size());
    }

    private void checkValue(boolean isPresent, String field, double value) throws MalformedException {
        if (isPresent && Value.isMeasured(value) && Math.abs(value) > plan.maxValue) {
            throw new MalformedException("the " + field + " " + value + " of metric " + name
                    + " is beyond max_value, which is " + plan.maxValue);
        }
    }

    private long checkedTotal(long total, long count, String what) throws MalformedException {
        long added = Value.add(total, count, plan.maxCount);
        if (added < 0) {
            throw new MalformedException("with " + Long.toUnsignedString(count) + " of metric " + name + " the push's "
                    + what + " add up to more than max_count, which is " + plan.maxCount);
        }
        return added;
    }

    /**
     * Returns the hash of the current point's series. Equal dimensions have equal hashes in all
     * pushes.
     *
     * <p>The last four dimensions are hashed only if there is one, because nearly all series have
     * none. The encoding stays unambiguous, because it then ends after the word for breakdowns.
     *
     * @return an object that is reused for all points of the push
     */
    private SipHash hashSeries() {
        pointHash.resumeFrom(metricHash)
                .text(topic)
                .text(nodeId)
                .text(nodeRole)
                .word(isBreakdown ? 1 : 0);
        if (reason != null || error != null || acks != null || partition != null) {
            pointHash.text(reason).text(error).text(acks).text(partition);
        }
        return pointHash.finish();
    }

    /**
     * Returns the identity of a client's cumulative sum or histogram: the hash of its metric and
     * attributes, in any order. That of a histogram also has its bounds, because counts of other
     * buckets don't continue.
     *
     * @return an object that is reused for all points of the push, other than {@link #seriesHash}
     */
    final SipHash identityHash() {
        attributeHash
                .begin(key, SipHash.CUMULATIVE)
                .text(name)
                .word(attributesHigh)
                .word(attributesLow);
        if (type == MetricType.HISTOGRAM) {
            for (int index = 0; index < point.bounds.size(); index++) {
                attributeHash.word(point.bounds.get(index));
            }
            attributeHash.word(type.ordinal());
        } else if (type == MetricType.EXPONENTIAL_HISTOGRAM) {
            attributeHash
                    .word(Math.min(point.scale, Buckets.MAX_SCALE))
                    .word(Double.doubleToRawLongBits(point.zeroThreshold))
                    .word(type.ordinal());
        }
        return attributeHash.finish();
    }

    /**
     * Returns the identity of a part of a cumulative histogram.
     *
     * @param histogram the identity of its histogram
     * @return an object that is reused for all parts of the push
     */
    final SipHash partHash(SipHash histogram, int part, long lower, long upper) {
        return repeatHash
                .begin(key, SipHash.PART)
                .word(histogram.high)
                .word(histogram.low)
                .word(part)
                .word(lower)
                .word(upper)
                .finish();
    }

    private Entry entry(long pointNs) throws MalformedException {
        boolean isPlausible = pointNs > 0
                && pointNs - receivedAtNs <= plan.maxAheadNs
                && receivedAtNs - pointNs <= plan.maxBehindNs;
        long timeNs = isPlausible ? pointNs : receivedAtNs;
        if (entryLabels != labels) {
            UTF8String instance = labels.instance();
            if (instance == null) {
                throw new MalformedException("a resource with data points has no client_instance_id");
            }
            instanceEntries = entriesByInstance.computeIfAbsent(instance, unused -> new ArrayList<>(1));
            entryLabels = labels;
        }
        Entry known = entryAt(timeNs);
        if (known == null && instanceEntries.size() >= MAX_ENTRIES) {
            timeNs = receivedAtNs;
            known = entryAt(timeNs);
        }
        if (known != null) {
            return known;
        }
        long minute = Math.floorDiv(timeNs, MINUTE_NS);
        Entry created = new Entry(labels, timeNs, minute, instanceEntries.isEmpty(), minute >= plan.minMinute);
        instanceEntries.add(created);
        entries.add(created);
        return created;
    }

    private Entry entryAt(long timeNs) {
        for (Entry each : instanceEntries) {
            in.count(1);
            if (Math.abs(each.timeNs - timeNs) <= SAME_ENTRY_NS) {
                return each;
            }
        }
        return null;
    }
}
