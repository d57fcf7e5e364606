package kafkaclienttelemetry.rollup;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Checks that a payload is valid OTLP before anything is read from it.
 *
 * <p>A malformed payload is refused as a whole, even if the malformed part is never read. So it
 * never yields only some of its points.
 *
 * <p>Source: opentelemetry-proto 1.x, {@code metrics.proto}, {@code common.proto}, {@code
 * resource.proto}.
 */
final class Schema {
    private enum Kind { TEXT, MESSAGE, PACKED_VARINTS, PACKED_FIXED64 }

    private static final long NOT_ASCII = 0x8080808080808080L;

    private static final Schema ANY_VALUE = new Schema();
    private static final Schema KEY_VALUE = new Schema().texts(1).message(2, ANY_VALUE);

    static {
        ANY_VALUE.texts(1)
                .message(5, new Schema().message(1, ANY_VALUE))
                .message(6, new Schema().message(1, KEY_VALUE));
    }

    private static final Schema EXEMPLAR = new Schema().message(7, KEY_VALUE);
    private static final Schema NUMBER_POINT = new Schema().message(7, KEY_VALUE).message(5, EXEMPLAR);
    private static final Schema HISTOGRAM_POINT =
            new Schema().message(9, KEY_VALUE).message(8, EXEMPLAR).packedFixed64(6).packedFixed64(7);
    private static final Schema BUCKETS = new Schema().packedVarints(2);
    private static final Schema EXPONENTIAL_POINT = new Schema()
            .message(1, KEY_VALUE)
            .message(11, EXEMPLAR)
            .message(8, BUCKETS)
            .message(9, BUCKETS);
    private static final Schema SUMMARY_POINT = new Schema().message(7, KEY_VALUE).message(6, new Schema());

    private static final Schema METRIC = new Schema()
            .texts(1, 2, 3)
            .message(5, new Schema().message(1, NUMBER_POINT))
            .message(7, new Schema().message(1, NUMBER_POINT))
            .message(9, new Schema().message(1, HISTOGRAM_POINT))
            .message(10, new Schema().message(1, EXPONENTIAL_POINT))
            .message(11, new Schema().message(1, SUMMARY_POINT))
            .message(12, KEY_VALUE);
    private static final Schema SCOPE = new Schema().texts(1, 2).message(3, KEY_VALUE);
    private static final Schema RESOURCE =
            new Schema().message(1, KEY_VALUE).message(3, new Schema().texts(1, 2, 3, 4));
    private static final Schema METRICS_DATA = new Schema()
            .message(1, new Schema()
                    .message(1, RESOURCE)
                    .message(2, new Schema().message(1, SCOPE).message(2, METRIC).texts(3))
                    .texts(3));

    /** Kinds by field number. Null means that the contents can't be malformed. */
    private final Kind[] kinds = new Kind[13];
    private final Schema[] messages = new Schema[13];

    private Schema texts(int... numbers) {
        for (int number : numbers) {
            kinds[number] = Kind.TEXT;
        }
        return this;
    }

    private Schema message(int number, Schema message) {
        kinds[number] = Kind.MESSAGE;
        messages[number] = message;
        return this;
    }

    private Schema packedVarints(int number) {
        kinds[number] = Kind.PACKED_VARINTS;
        return this;
    }

    private Schema packedFixed64(int number) {
        kinds[number] = Kind.PACKED_FIXED64;
        return this;
    }

    /** Checks a MetricsData, which is encoded like an ExportMetricsServiceRequest. */
    static void check(byte[] otlp) throws MalformedException {
        METRICS_DATA.check(new WireReader(otlp), WireReader.MAX_DEPTH);
    }

    private void check(WireReader in, int depth) throws MalformedException {
        while (in.next()) {
            int number = in.fieldNumber();
            Kind kind = in.wireType() == WireReader.BYTES && number < kinds.length ? kinds[number] : null;
            if (kind == null) {
                in.skip(depth);
                continue;
            }
            switch (kind) {
                case MESSAGE -> {
                    if (depth <= 0) {
                        throw in.tooDeep();
                    }
                    int outer = in.enter();
                    messages[number].check(in, depth - 1);
                    in.leave(outer);
                }
                case TEXT -> {
                    int length = in.length();
                    checkText(in, in.position(), length);
                    in.move(length);
                }
                case PACKED_FIXED64 -> {
                    int length = in.length();
                    if (length % Long.BYTES != 0) {
                        throw new MalformedException("a packed field with an incomplete number", in.position());
                    }
                    in.move(length);
                }
                case PACKED_VARINTS -> {
                    int outer = in.enter();
                    while (in.position() < in.limit()) {
                        in.varint();
                    }
                    in.leave(outer);
                }
            }
        }
    }

    private static void checkText(WireReader in, int from, int length) throws MalformedException {
        int at = from;
        int end = from + length;
        while (end - at >= Long.BYTES && (in.longAt(at) & NOT_ASCII) == 0) {
            at += Long.BYTES;
        }
        while (at < end && in.bytes[at] >= 0) {
            at++;
        }
        if (at < end && !UTF8String.fromBytes(in.bytes, at, end - at).isValid()) {
            throw new MalformedException("text that is not UTF-8", from);
        }
    }
}
