package kafkaclienttelemetry.rollup;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Visits the data points of a push with their entry, rule and series.
 *
 * <p>Points that the roll-up ignores (NaN, no recorded value, cumulative histograms) are only
 * counted in their entry. A push with a number beyond the plan's bounds is refused as a whole,
 * because one such number could drown a total, and thousands could exceed the range of its type.
 */
abstract class RollUp extends PushWalk {
    /** Bounds memory, because an entry is far larger than the data point that creates it. */
    static final int MAX_ENTRIES = 128;

    /**
     * Points this close in time belong to one entry, even across the end of a minute, because Java
     * clients stamp each metric when they collect it, within milliseconds.
     */
    private static final long SAME_ENTRY_NS = 1_000_000_000L;

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
    private final UTF8String fallbackInstance;
    private final long receivedAtNs;

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
    }

    /** Called for each gauge or delta, which combines by {@link #rule}. */
    abstract void number(double value);

    /** Called for each value of a monotonic cumulative sum, whose growth counts. */
    abstract void cumulative(double value);

    /** Called for each non-empty delta histogram or summary. */
    abstract void histogram(long count);

    /** Returns all entries in order of appearance. Those before the first minute have no values. */
    final List<Entry> entries() {
        return entries;
    }

    /** Visits the push, then one synthetic point for each client and push. */
    final void run() throws MalformedException {
        walk();
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
    }

    private void synthetic(UTF8String metricName, byte combines) {
        name = metricName;
        type = MetricType.GAUGE;
        rule = combines;
        metric = Plan.Metric.UNKNOWN;
        beginSeries();
        beginPoint();
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
                isIgnored = temporality != DELTA;
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
        if (isCumulative) { // a sum, so that the order of attributes does not matter
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
        if (type == MetricType.GAUGE || type == MetricType.SUM) {
            if (point.hasValue && Value.isMeasured(point.value)) {
                double value = Value.storable(point.value);
                if (isCumulative) {
                    cumulative(value);
                } else {
                    number(value);
                }
            }
        } else if (point.count != 0) {
            histogram(point.count);
        }
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
    final SipHash seriesHash() {
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
     * Returns the identity of a client's cumulative sum: the hash of its metric and attributes, in
     * any order.
     *
     * @return an object that is reused for all points of the push, other than that of {@link
     *     #seriesHash}
     */
    final SipHash identityHash() {
        return attributeHash
                .begin(key, SipHash.CUMULATIVE)
                .text(name)
                .word(attributesHigh)
                .word(attributesLow)
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
