package kafkaclienttelemetry.rollup;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads OTLP attribute values of any type and writes them as text. */
final class AnyValue {
    private static final ObjectMapper JSON = new ObjectMapper();

    private AnyValue() {}

    /**
     * Reads the current field and merges it with the value so far, as protobuf does.
     *
     * @param before the value so far; lists and maps are extended in place, other values are
     *     replaced
     * @return the value, or null if there is none
     */
    static Object field(WireReader in, Object before) throws MalformedException {
        switch (in.tag()) {
            case 1 << 3 | WireReader.BYTES:
                return text(in);
            case 2 << 3 | WireReader.VARINT:
                return in.varint() != 0;
            case 3 << 3 | WireReader.VARINT:
                return in.varint();
            case 4 << 3 | WireReader.FIXED64:
                return in.float64();
            case 5 << 3 | WireReader.BYTES:
                return list(in, before);
            case 6 << 3 | WireReader.BYTES:
                return map(in, before);
            case 7 << 3 | WireReader.BYTES: {
                int length = in.length();
                int from = in.position();
                in.move(length);
                return Arrays.copyOfRange(in.bytes, from, from + length);
            }
            case 8 << 3 | WireReader.VARINT: // an index into a string table that only profiles have
                in.varint();
                return null;
            default:
                in.skip();
                return before;
        }
    }

    private static String text(WireReader in) throws MalformedException {
        int length = in.length();
        int from = in.position();
        in.move(length);
        in.count(length);
        return new String(in.bytes, from, length, StandardCharsets.UTF_8);
    }

    private static Object message(WireReader in, Object before) throws MalformedException {
        Object value = before;
        int outer = in.enter();
        while (in.next()) {
            value = field(in, value);
        }
        in.leave(outer);
        return value;
    }

    // Lists and maps are extended in place, because copying them for each part takes quadratic
    // time.
    @SuppressWarnings("unchecked") // only this method creates lists
    private static List<Object> list(WireReader in, Object before) throws MalformedException {
        List<Object> values = before instanceof List<?> list ? (List<Object>) list : new ArrayList<>();
        int outer = in.enter();
        while (in.next()) {
            if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                values.add(message(in, null));
            } else {
                in.skip();
            }
        }
        in.leave(outer);
        return values;
    }

    @SuppressWarnings("unchecked") // only this method creates maps
    private static Map<Object, Object> map(WireReader in, Object before) throws MalformedException {
        Map<Object, Object> values = before instanceof Map<?, ?> map ? (Map<Object, Object>) map : new LinkedHashMap<>();
        int outer = in.enter();
        while (in.next()) {
            if (in.tag() == (1 << 3 | WireReader.BYTES)) {
                int around = in.enter();
                String key = "";
                Object value = null;
                while (in.next()) {
                    switch (in.tag()) {
                        case 1 << 3 | WireReader.BYTES -> key = text(in);
                        case 2 << 3 | WireReader.BYTES -> value = message(in, value);
                        default -> in.skip();
                    }
                }
                in.leave(around);
                values.put(key, value);
            } else {
                in.skip();
            }
        }
        in.leave(outer);
        return values;
    }

    /** Returns a value as text: bytes as base64, lists and maps as JSON. */
    static String toText(Object value) {
        if (value instanceof byte[] bytes) {
            return Base64.getEncoder().encodeToString(bytes);
        }
        if (value instanceof List || value instanceof Map) {
            try {
                return JSON.writeValueAsString(value);
            } catch (JsonProcessingException impossible) { // all element types are JSON types
                throw new IllegalStateException(impossible);
            }
        }
        return value.toString();
    }
}
