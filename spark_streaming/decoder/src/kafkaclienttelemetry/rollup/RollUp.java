package kafkaclienttelemetry.rollup;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Walks through a push as the roll-up sees it: each data point with its entry, its rule and its series.
 *
 * <p>What is not for the roll-up (NaN, no recorded value, a cumulative histogram) is counted in its entry, and
 * nothing else is told of it. A push with a number beyond the plan's bounds is refused as a whole: one of them could
 * drown a total, and thousands could exceed the range of its type.
 */
abstract class RollUp extends PushWalk {
    /** Data points that have each so few bytes could make entries which are far larger. */
    static final int MAX_ENTRIES = 128;

    /**
     * Java clients stamp each metric as they collect it, within some milliseconds: what is so near in time was said
     * at once, also where a minute ends in between.
     */
    private static final long AT_ONCE_NS = 1_000_000_000L;

    private static final long MINUTE_NS = 60_000_000_000L;
    private static final UTF8String CLIENTS = UTF8String.fromString("kafka.client.telemetry.clients");
    private static final UTF8String PUSHES = UTF8String.fromString("kafka.client.telemetry.pushes");
    private static final byte[] TOPIC = "topic".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NODE_ID = "node_id".getBytes(StandardCharsets.US_ASCII);
    /** What clients send for it where the receiver does not normalise names. */
    private static final byte[] SENT_NODE_ID = "node.id".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NODE_ROLE = "node_role".getBytes(StandardCharsets.US_ASCII);

    final Plan plan;
    final IdKey key;
    private final UTF8String fallbackInstance;
    private final long receivedAtNs;

    private final List<Entry> entries = new ArrayList<>();
    private final Map<UTF8String, List<Entry>> entriesOf = new HashMap<>();
    private long counted;
    private long bucketed;
    private List<Entry> entriesAtHand;
    private Labels labelsOfThem;

    // Of the resource, the metric and the point that are at hand.
    Labels labels;
    Plan.Metric metric;
    byte rule;
    private boolean isCumulative;
    private boolean isLeftOut;
    private final SipHash ofMetric = new SipHash();
    private final SipHash ofPoint = new SipHash();
    private final SipHash ofAttribute = new SipHash();
    Entry entry;
    UTF8String topic;
    UTF8String nodeId;
    UTF8String nodeRole;
    boolean isBreakdown;
    private long attributesHigh;
    private long attributesLow;
    private long legacyAttributes;

    RollUp(byte[] otlp, UTF8String fallbackInstance, long receivedAtNs, Plan plan, IdKey key) {
        super(otlp);
        this.fallbackInstance = fallbackInstance;
        this.receivedAtNs = receivedAtNs;
        this.plan = plan;
        this.key = key;
    }

    /** A number counts: by {@link #rule}, which is the sum of deltas, or a gauge's. */
    abstract void number(double value);

    /** The value of a monotonic cumulative sum, of which the difference to the last one will count. */
    abstract void cumulative(double value);

    /** A histogram of deltas, or a summary, of at least one value. */
    abstract void histogram(long count);

    /** All entries, in the order in which they first came; those that are not wanted have no values. */
    final List<Entry> entries() {
        return entries;
    }

    /** Goes through the push, and then through what is added to each one: who spoke, and how often. */
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

    private void synthetic(UTF8String named, byte combines) {
        name = named;
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
        labels.take(attribute);
    }

    @Override
    final void beginMetric() {
        name = Text.storable(name, key);
        metric = plan.metric(name);
        byte known = metric.code();
        isCumulative = false;
        isLeftOut = false;
        switch (type) {
            case GAUGE -> {
                byte gauge = known < 0 ? Rule.bySuffix(name) : known;
                rule = gauge == Rule.SUM ? Rule.LAST : gauge;
            }
            case SUM -> {
                isCumulative = temporality == CUMULATIVE && isMonotonic;
                isLeftOut = temporality != DELTA && temporality != CUMULATIVE;
                rule = temporality == CUMULATIVE && !isMonotonic ? Rule.LAST : Rule.SUM;
            }
            case HISTOGRAM, EXPONENTIAL_HISTOGRAM -> {
                isLeftOut = temporality != DELTA;
                rule = Rule.DISTRIBUTION;
            }
            case SUMMARY -> rule = Rule.DISTRIBUTION;
        }
        // Nobody but this roll-up says how many clients there are.
        isLeftOut |= name.equals(CLIENTS) || name.equals(PUSHES);
        beginSeries();
    }

    private void beginSeries() {
        ofMetric.goOn(labels.series).text(name);
    }

    @Override
    final void beginPoint() {
        topic = null;
        nodeId = null;
        nodeRole = null;
        isBreakdown = false;
        attributesHigh = 0;
        attributesLow = 0;
        legacyAttributes = 0;
    }

    @Override
    public final void pointAttribute() throws MalformedException {
        attribute.read();
        if (attribute.hasKey(TOPIC)) {
            topic = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(NODE_ID) || attribute.hasKey(SENT_NODE_ID)) {
            nodeId = Text.storable(attribute.text(), key);
        } else if (attribute.hasKey(NODE_ROLE)) {
            nodeRole = Text.storable(attribute.text(), key);
        }
        for (byte[] finer : metric.finer()) {
            isBreakdown |= attribute.hasKey(finer);
        }
        if (isCumulative) { // added up, so that their order is of no matter
            ofAttribute
                    .begin(key, SipHash.ATTRIBUTE)
                    .text(attribute.key())
                    .text(attribute.text())
                    .finish();
            attributesHigh += ofAttribute.high;
            attributesLow += ofAttribute.low;
            legacyAttributes += LegacyIdentity.ofAttribute(attribute.key(), attribute.text());
        }
    }

    @Override
    final void endPoint() throws MalformedException {
        entry = entry(point.timeNs);
        entry.points++;
        if (isLeftOut || !point.isRecorded()) {
            return;
        }
        // Before what the plan leaves out: a rebuild must refuse the same pushes.
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
                counted = checkedTotal(counted, point.count, "counts");
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
                bucketed = checkedTotal(bucketed, point.zeroCount, "bucket counts");
                checkBuckets(point.positive.counts);
            }
            default -> {}
        }
    }

    private void checkBuckets(Longs counts) throws MalformedException {
        for (int index = 0; index < counts.size(); index++) {
            bucketed = checkedTotal(bucketed, counts.get(index), "bucket counts");
        }
        in.count(counts.size());
    }

    private void checkValue(boolean isThere, String field, double value) throws MalformedException {
        if (isThere && Value.isMeasured(value) && Math.abs(value) > plan.maxValue) {
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
     * The hash of the series of the point at hand: the same dimensions have the same hash in every push.
     *
     * @return one object for all points of the push
     */
    final SipHash seriesHash() {
        return ofPoint.goOn(ofMetric)
                .text(topic)
                .text(nodeId)
                .text(nodeRole)
                .word(isBreakdown ? 1 : 0)
                .finish();
    }

    /**
     * What tells a cumulative sum from the client's others: the hash of its metric and of all attributes of the
     * point, whatever their order.
     *
     * @return one object for all points of the push, not the one of {@link #seriesHash}
     */
    final SipHash identityHash() {
        return ofAttribute
                .begin(key, SipHash.CUMULATIVE)
                .text(name)
                .word(attributesHigh)
                .word(attributesLow)
                .finish();
    }

    /** The same as an older version stored it. */
    final long legacyIdentity() {
        return LegacyIdentity.of(name, legacyAttributes);
    }

    private Entry entry(long pointNs) throws MalformedException {
        boolean isBelievable = pointNs > 0
                && pointNs - receivedAtNs <= plan.maxAheadNs
                && receivedAtNs - pointNs <= plan.maxBehindNs;
        long timeNs = isBelievable ? pointNs : receivedAtNs;
        if (labelsOfThem != labels) {
            UTF8String instance = labels.instance();
            if (instance == null) {
                throw new MalformedException("a resource with data points has no client_instance_id");
            }
            entriesAtHand = entriesOf.computeIfAbsent(instance, of -> new ArrayList<>(1));
            labelsOfThem = labels;
        }
        Entry known = entryAt(timeNs);
        if (known == null && entriesAtHand.size() >= MAX_ENTRIES) {
            timeNs = receivedAtNs;
            known = entryAt(timeNs);
        }
        if (known != null) {
            return known;
        }
        long minute = Math.floorDiv(timeNs, MINUTE_NS);
        Entry created = new Entry(labels, timeNs, minute, entriesAtHand.isEmpty(), minute >= plan.minMinute);
        entriesAtHand.add(created);
        entries.add(created);
        return created;
    }

    private Entry entryAt(long timeNs) {
        for (Entry each : entriesAtHand) {
            in.count(1);
            if (Math.abs(each.timeNs - timeNs) <= AT_ONCE_NS) {
                return each;
            }
        }
        return null;
    }
}
