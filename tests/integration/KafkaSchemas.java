import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Prints what Kafka's own message classes say, one line for each version of each RPC: API key, API version, whether it is
 * stable, request header version, response header version, and the body of an otherwise empty response of error 42 ("-"
 * where that version has no error code of its own).
 */
public final class KafkaSchemas {
    private static final short INVALID_REQUEST = 42;

    public static void main(String[] arguments) throws ReflectiveOperationException {
        for (ApiMessageType type : ApiMessageType.values()) {
            for (int v = type.lowestSupportedVersion(); v <= type.highestSupportedVersion(true); v++) {
                short version = (short) v;
                System.out.println(String.join(
                        " ",
                        Short.toString(type.apiKey()),
                        Short.toString(version),
                        Boolean.toString(version <= type.highestSupportedVersion(false)),
                        Short.toString(type.requestHeaderVersion(version)),
                        Short.toString(type.responseHeaderVersion(version)),
                        errorBody(type, version)));
            }
        }
    }

    private static String errorBody(ApiMessageType type, short version) throws ReflectiveOperationException {
        ApiMessage response = type.newResponse();
        try {
            response.getClass().getMethod("setErrorCode", short.class).invoke(response, INVALID_REQUEST);
        } catch (NoSuchMethodException noErrorCode) {
            return "-";
        }
        ByteBuffer body;
        try {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            body = ByteBuffer.allocate(response.size(cache, version));
            response.write(new ByteBufferAccessor(body), cache, version);
        } catch (UnsupportedVersionException noErrorCodeInThisVersion) {
            return "-";
        }
        ApiMessage read = type.newResponse();
        read.read(new ByteBufferAccessor(body.flip()), version);
        return read.equals(response) ? HexFormat.of().formatHex(body.array()) : "-";
    }
}
