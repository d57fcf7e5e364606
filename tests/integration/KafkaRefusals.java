import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * Prints what Kafka's own requests answer with INVALID_REQUEST, one line for each version of each API key of the arguments:
 * API key, API version, the body of a request with two entries in every list, and the body of the response without error
 * messages.
 */
public final class KafkaRefusals {
    private static int made;

    public static void main(String[] arguments) throws ReflectiveOperationException {
        for (String argument : arguments) {
            ApiKeys api = ApiKeys.forId(Short.parseShort(argument));
            for (short version : api.allVersions()) {
                if (version <= api.latestVersion(false)) {
                    print(api, version);
                }
            }
        }
    }

    private static void print(ApiKeys api, short version) throws ReflectiveOperationException {
        ApiMessage request = api.messageType.newRequest();
        fill(request, version);
        byte[] body = written(request, version);
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(body));
        AbstractResponse response = AbstractRequest.parseRequest(api, version, readable)
                .request
                .getErrorResponse(0, Errors.INVALID_REQUEST.exception());
        removeMessages(response.data());
        HexFormat hex = HexFormat.of();
        String answer = hex.formatHex(written(response.data(), version));
        System.out.println(api.id + " " + version + " " + hex.formatHex(body) + " " + answer);
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer body = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(body), cache, version);
        return body.array();
    }

    /** Sets every field that the version has. */
    private static void fill(Message message, short version) throws ReflectiveOperationException {
        for (Method setter : message.getClass().getMethods()) {
            boolean ofCollection = setter.getName().equals("setNext") || setter.getName().equals("setPrev");
            if (!setter.getName().startsWith("set")
                    || setter.getParameterCount() != 1
                    || setter.isBridge()
                    || ofCollection) {
                continue;
            }
            Method getter = message.getClass().getMethod(
                    Character.toLowerCase(setter.getName().charAt(3)) + setter.getName().substring(4));
            Object before = getter.invoke(message);
            Object value = value(setter.getGenericParameterTypes()[0], setter.getParameterTypes()[0], version);
            if (value == null) {
                continue;
            }
            setter.invoke(message, value);
            try {
                written(message, version);
            } catch (UnsupportedVersionException notInThisVersion) {
                setter.invoke(message, before);
            }
        }
    }

    private static Object value(Type type, Class<?> raw, short version) throws ReflectiveOperationException {
        made++;
        if (raw == boolean.class) return true;
        if (raw == byte.class || raw == Byte.class) return (byte) (made % 100);
        if (raw == short.class || raw == Short.class) return (short) made;
        if (raw == int.class || raw == Integer.class) return made;
        if (raw == long.class || raw == Long.class) return (long) made;
        if (raw == double.class) return (double) made;
        if (raw == String.class) return "text " + made;
        if (raw == byte[].class) return ("bytes " + made).getBytes();
        if (raw == BaseRecords.class) return MemoryRecords.readableRecords(ByteBuffer.wrap("records".getBytes()));
        if (raw == Uuid.class) return new Uuid(1, made);
        if (Collection.class.isAssignableFrom(raw)) return entries(type, raw, version);
        if (Message.class.isAssignableFrom(raw)) {
            Message message = (Message) raw.getConstructor().newInstance();
            fill(message, version);
            return message;
        }
        return null;
    }

    @SuppressWarnings("unchecked")
    private static Object entries(Type type, Class<?> raw, short version) throws ReflectiveOperationException {
        boolean isList = raw == List.class;
        Type of = isList ? type : raw.getGenericSuperclass();
        Class<?> element = (Class<?>) ((ParameterizedType) of).getActualTypeArguments()[0];
        Collection<Object> entries =
                isList ? new ArrayList<>() : (Collection<Object>) raw.getConstructor().newInstance();
        for (int number = 0; number < 2; number++) {
            entries.add(value(element, element, version));
        }
        return entries;
    }

    private static void removeMessages(Message message) throws ReflectiveOperationException {
        for (Method method : message.getClass().getMethods()) {
            if (method.getName().equals("setErrorMessage")) {
                method.invoke(message, (Object) null);
            }
            if (method.getParameterCount() == 0 && Collection.class.isAssignableFrom(method.getReturnType())
                    && !method.getName().equals("unknownTaggedFields")) {
                Collection<?> entries = (Collection<?>) method.invoke(message);
                for (Object entry : entries == null ? List.of() : entries) {
                    if (entry instanceof Message) {
                        removeMessages((Message) entry);
                    }
                }
            }
        }
    }
}
