package kafkaclienttelemetry.rollup;

/** One data point of any OTLP type. The object is reused for all points of a push. */
final class DataPoint {
    /** Receives the attributes of a point. */
    interface AttributeReader {
        /** Reads a length-prefixed attribute. */
        void pointAttribute() throws MalformedException;
    }

    /** One side of an exponential histogram: counts of adjacent buckets, starting at the offset. */
    static final class Side {
        int offset;
        final Longs counts = new Longs();

        private void clear() {
            offset = 0;
            counts.clear();
        }

        private void read(WireReader in) throws MalformedException {
            int outer = in.enter();
            while (in.next()) {
                switch (in.tag()) {
                    case 1 << 3 | WireReader.VARINT -> offset = in.zigzag();
                    case 2 << 3 | WireReader.VARINT -> counts.add(in.varint());
                    case 2 << 3 | WireReader.BYTES -> {
                        int around = in.enter();
                        while (in.position() < in.limit()) {
                            counts.add(in.varint());
                        }
                        in.leave(around);
                    }
                    default -> in.skip();
                }
            }
            in.leave(outer);
        }
    }

    private static final int NO_RECORDED_VALUE = 1;

    long startNs;
    long timeNs;
    int flags;
    /** Whether there is a {@link #value}. For numbers only. */
    boolean hasValue;
    double value;
    long count;
    boolean hasSum;
    double sum;
    boolean hasMin;
    double min;
    boolean hasMax;
    double max;
    int scale;
    long zeroCount;
    double zeroThreshold;
    final Longs counts = new Longs();
    final Longs bounds = new Longs();
    final Side positive = new Side();
    final Side negative = new Side();
    final Longs quantiles = new Longs();
    final Longs quantileValues = new Longs();

    boolean isRecorded() {
        return (flags & NO_RECORDED_VALUE) == 0;
    }

    /** Adds what was measured to a hash, in an unambiguous form. */
    void hash(MetricType type, SipHash hash) {
        if (type == MetricType.GAUGE || type == MetricType.SUM) {
            hash.word(hasValue ? 1 : 0).word(Double.doubleToRawLongBits(value));
            return;
        }
        hash.word(count);
        hash(hash, hasSum, sum);
        hash(hash, hasMin, min);
        hash(hash, hasMax, max);
        switch (type) {
            case HISTOGRAM -> {
                hash(hash, counts);
                hash(hash, bounds);
            }
            case EXPONENTIAL_HISTOGRAM -> {
                hash.word(scale).word(zeroCount).word(Double.doubleToRawLongBits(zeroThreshold));
                for (Side side : new Side[] {positive, negative}) {
                    hash(hash.word(side.offset), side.counts);
                }
            }
            default -> {
                hash(hash, quantiles);
                hash(hash, quantileValues);
            }
        }
    }

    private static void hash(SipHash hash, boolean isThere, double value) {
        hash.word(isThere ? 1 : 0).word(isThere ? Double.doubleToRawLongBits(value) : 0);
    }

    private static void hash(SipHash hash, Longs values) {
        hash.word(values.size());
        for (int index = 0; index < values.size(); index++) {
            hash.word(values.get(index));
        }
    }

    /** Reads the fields of the current message. */
    void read(MetricType type, WireReader in, AttributeReader attributes) throws MalformedException {
        startNs = 0;
        timeNs = 0;
        flags = 0;
        switch (type) {
            case GAUGE, SUM -> number(in, attributes);
            case HISTOGRAM -> histogram(in, attributes);
            case EXPONENTIAL_HISTOGRAM -> exponential(in, attributes);
            case SUMMARY -> summary(in, attributes);
        }
    }

    private void number(WireReader in, AttributeReader attributes) throws MalformedException {
        hasValue = false;
        while (in.next()) {
            switch (in.tag()) {
                case 2 << 3 | WireReader.FIXED64 -> startNs = in.fixed64();
                case 3 << 3 | WireReader.FIXED64 -> timeNs = in.fixed64();
                case 4 << 3 | WireReader.FIXED64 -> number(in.float64());
                case 6 << 3 | WireReader.FIXED64 -> number(in.fixed64());
                case 7 << 3 | WireReader.BYTES -> attributes.pointAttribute();
                case 8 << 3 | WireReader.VARINT -> flags = (int) in.varint();
                default -> in.skip();
            }
        }
    }

    private void number(double read) {
        hasValue = true;
        value = read;
    }

    private void clearHistogram() {
        count = 0;
        hasSum = false;
        hasMin = false;
        hasMax = false;
    }

    private void histogram(WireReader in, AttributeReader attributes) throws MalformedException {
        clearHistogram();
        counts.clear();
        bounds.clear();
        while (in.next()) {
            switch (in.tag()) {
                case 2 << 3 | WireReader.FIXED64 -> startNs = in.fixed64();
                case 3 << 3 | WireReader.FIXED64 -> timeNs = in.fixed64();
                case 4 << 3 | WireReader.FIXED64 -> count = in.fixed64();
                case 5 << 3 | WireReader.FIXED64 -> sum(in.float64());
                case 6 << 3 | WireReader.FIXED64 -> counts.add(in.fixed64());
                case 6 << 3 | WireReader.BYTES -> addPacked(in, counts);
                case 7 << 3 | WireReader.FIXED64 -> bounds.add(in.fixed64());
                case 7 << 3 | WireReader.BYTES -> addPacked(in, bounds);
                case 9 << 3 | WireReader.BYTES -> attributes.pointAttribute();
                case 10 << 3 | WireReader.VARINT -> flags = (int) in.varint();
                case 11 << 3 | WireReader.FIXED64 -> min(in.float64());
                case 12 << 3 | WireReader.FIXED64 -> max(in.float64());
                default -> in.skip();
            }
        }
    }

    private void exponential(WireReader in, AttributeReader attributes) throws MalformedException {
        clearHistogram();
        scale = 0;
        zeroCount = 0;
        zeroThreshold = 0;
        positive.clear();
        negative.clear();
        while (in.next()) {
            switch (in.tag()) {
                case 1 << 3 | WireReader.BYTES -> attributes.pointAttribute();
                case 2 << 3 | WireReader.FIXED64 -> startNs = in.fixed64();
                case 3 << 3 | WireReader.FIXED64 -> timeNs = in.fixed64();
                case 4 << 3 | WireReader.FIXED64 -> count = in.fixed64();
                case 5 << 3 | WireReader.FIXED64 -> sum(in.float64());
                case 6 << 3 | WireReader.VARINT -> scale = in.zigzag();
                case 7 << 3 | WireReader.FIXED64 -> zeroCount = in.fixed64();
                case 8 << 3 | WireReader.BYTES -> positive.read(in);
                case 9 << 3 | WireReader.BYTES -> negative.read(in);
                case 10 << 3 | WireReader.VARINT -> flags = (int) in.varint();
                case 12 << 3 | WireReader.FIXED64 -> min(in.float64());
                case 13 << 3 | WireReader.FIXED64 -> max(in.float64());
                case 14 << 3 | WireReader.FIXED64 -> zeroThreshold = in.float64();
                default -> in.skip();
            }
        }
    }

    private void summary(WireReader in, AttributeReader attributes) throws MalformedException {
        clearHistogram();
        quantiles.clear();
        quantileValues.clear();
        sum(0); // without field presence, so a missing sum is 0
        while (in.next()) {
            switch (in.tag()) {
                case 2 << 3 | WireReader.FIXED64 -> startNs = in.fixed64();
                case 3 << 3 | WireReader.FIXED64 -> timeNs = in.fixed64();
                case 4 << 3 | WireReader.FIXED64 -> count = in.fixed64();
                case 5 << 3 | WireReader.FIXED64 -> sum(in.float64());
                case 6 << 3 | WireReader.BYTES -> quantile(in);
                case 7 << 3 | WireReader.BYTES -> attributes.pointAttribute();
                case 8 << 3 | WireReader.VARINT -> flags = (int) in.varint();
                default -> in.skip();
            }
        }
    }

    private void quantile(WireReader in) throws MalformedException {
        double quantile = 0;
        double at = 0;
        int outer = in.enter();
        while (in.next()) {
            switch (in.tag()) {
                case 1 << 3 | WireReader.FIXED64 -> quantile = in.float64();
                case 2 << 3 | WireReader.FIXED64 -> at = in.float64();
                default -> in.skip();
            }
        }
        in.leave(outer);
        quantiles.add(quantile);
        quantileValues.add(at);
        if (quantile == 0) {
            min(at);
        } else if (quantile == 1) {
            max(at);
        }
    }

    private void sum(double read) {
        hasSum = true;
        sum = read;
    }

    private void min(double read) {
        hasMin = true;
        min = read;
    }

    private void max(double read) {
        hasMax = true;
        max = read;
    }

    private static void addPacked(WireReader in, Longs into) throws MalformedException {
        int outer = in.enter();
        while (in.position() < in.limit()) {
            into.add(in.fixed64());
        }
        in.leave(outer);
    }
}
