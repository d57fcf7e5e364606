package kafkaclienttelemetry.rollup;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Visits the data points of a push with their metric, scope and resource.
 *
 * <p>Fields may come in any order, and messages in several parts. So the fields that describe
 * points are read before the points.
 */
abstract class PushWalk implements DataPoint.AttributeReader {
    private static final UTF8String NO_TEXT = UTF8String.EMPTY_UTF8;
    static final int DELTA = 1;
    static final int CUMULATIVE = 2;

    final WireReader in;
    final Attribute attribute;
    final DataPoint point = new DataPoint();
    final Ranges scope = new Ranges();

    private Ranges resource = new Ranges();
    private Ranges otherResource = new Ranges();
    private boolean isFirstResource = true;

    UTF8String name;
    UTF8String unit;
    MetricType type;
    int temporality;
    boolean isMonotonic;
    private final Ranges data = new Ranges();

    PushWalk(byte[] otlp) {
        in = new WireReader(otlp);
        attribute = new Attribute(in);
    }

    /** Called for each new resource. {@link #readResource} reads its attributes. */
    abstract void beginResource() throws MalformedException;

    /** Called for each metric that has a data field. */
    abstract void beginMetric();

    /** Called after each data point. */
    abstract void endPoint() throws MalformedException;

    /** Called for each attribute of a resource. */
    abstract void resourceAttribute();

    /** Called before the attributes of each data point. */
    abstract void beginPoint();

    /** Called before the metrics of a scope, whose fields are at {@link #scope}. */
    void beginScope() throws MalformedException {}

    /** Visits the whole push. Throws before the first call if the push is malformed. */
    final void walk() throws MalformedException {
        Schema.check(in.bytes);
        while (in.next()) {
            if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                int outer = in.enter();
                resourceMetrics();
                in.leave(outer);
            } else {
                in.skip();
            }
        }
    }

    private void resourceMetrics() throws MalformedException {
        int from = in.position();
        int end = in.limit();
        resource.clear();
        collect(1, resource);
        // Java clients send an equal resource for each metric.
        if (isFirstResource || !resource.sameBytes(otherResource, in)) {
            beginResource();
            isFirstResource = false;
        }
        Ranges newest = resource;
        resource = otherResource;
        otherResource = newest;
        in.enter(from, end);
        while (in.next()) {
            if (in.tag() == (2 << 3 | WireReader.BYTES)) {
                int outer = in.enter();
                scopeMetrics();
                in.leave(outer);
            } else {
                in.skip();
            }
        }
    }

    /** Reads the attributes of the current resource. */
    final void readResource() throws MalformedException {
        for (int index = 0; index < resource.size(); index++) {
            in.enter(resource.from(index), resource.to(index));
            while (in.next()) {
                if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                    attribute.read();
                    resourceAttribute();
                } else {
                    in.skip();
                }
            }
        }
    }

    private void collect(int fieldNumber, Ranges into) throws MalformedException {
        int tag = fieldNumber << 3 | WireReader.BYTES;
        while (in.next()) {
            if (in.tag() == tag) {
                into.add(in);
            } else {
                in.skip();
            }
        }
    }

    private void scopeMetrics() throws MalformedException {
        int from = in.position();
        int end = in.limit();
        scope.clear();
        collect(1, scope);
        beginScope();
        in.enter(from, end);
        while (in.next()) {
            if (in.tag() == (2 << 3 | WireReader.BYTES)) {
                int outer = in.enter();
                metric();
                in.leave(outer);
            } else {
                in.skip();
            }
        }
    }

    private void metric() throws MalformedException {
        int end = in.limit();
        name = NO_TEXT;
        unit = NO_TEXT;
        type = null;
        while (in.next()) {
            int tag = in.tag();
            MetricType next = MetricType.of(tag);
            if (next != null) {
                if (next != type) { // the last type wins, as in protobuf's oneof
                    type = next;
                    data.clear();
                }
                data.add(in);
            } else if (tag == (1 << 3 | WireReader.BYTES)) {
                name = in.text();
            } else if (tag == (3 << 3 | WireReader.BYTES)) {
                unit = in.text();
            } else {
                in.skip();
            }
        }
        if (type != null) {
            temporality = 0;
            isMonotonic = false;
            if (type.hasTemporality()) {
                readTemporality();
            }
            beginMetric();
            points();
        }
        in.enter(end, end);
    }

    private void readTemporality() throws MalformedException {
        for (int index = 0; index < data.size(); index++) {
            in.enter(data.from(index), data.to(index));
            while (in.next()) {
                if (in.tag() == (2 << 3 | WireReader.VARINT)) {
                    temporality = (int) in.varint();
                } else if (in.tag() == (3 << 3 | WireReader.VARINT) && type == MetricType.SUM) {
                    isMonotonic = in.varint() != 0;
                } else {
                    in.skip();
                }
            }
        }
    }

    private void points() throws MalformedException {
        for (int index = 0; index < data.size(); index++) {
            in.enter(data.from(index), data.to(index));
            while (in.next()) {
                if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                    int outer = in.enter();
                    beginPoint();
                    point.read(type, in, this);
                    in.leave(outer);
                    endPoint();
                } else {
                    in.skip();
                }
            }
        }
    }
}
