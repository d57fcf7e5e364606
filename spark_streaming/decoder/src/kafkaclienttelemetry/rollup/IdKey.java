package kafkaclienttelemetry.rollup;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Secret key of one database's series hashes, for {@link SipHash}.
 *
 * <p>The driver registers the key under a public id, which queries pass as an argument. {@link
 * OtlpFunctions} puts the key into the plan, so tasks carry it. Plans, event logs and Spark's pages
 * show only the id.
 */
public final class IdKey implements Serializable {
    static final int BYTES = 16;

    private static final long serialVersionUID = 1L;
    private static final Map<String, IdKey> KEYS = new ConcurrentHashMap<>();

    final long first;
    final long second;
    private final String id;

    private IdKey(String id, byte[] secret) {
        ByteBuffer words = ByteBuffer.wrap(secret).order(ByteOrder.LITTLE_ENDIAN);
        this.id = id;
        first = words.getLong();
        second = words.getLong();
    }

    /**
     * Registers a key in the driver.
     *
     * @param id the public id
     * @param secret 16 random bytes
     * @throws IllegalArgumentException if the secret has another length
     */
    public static void register(String id, byte[] secret) {
        if (secret.length != BYTES) {
            throw new IllegalArgumentException("the id key has " + secret.length + " bytes (expected: " + BYTES + ")");
        }
        KEYS.put(id, new IdKey(id, secret));
    }

    /** Returns the key that is registered under an id. */
    static IdKey of(String id) {
        IdKey key = KEYS.get(id);
        if (key == null) {
            throw new IllegalArgumentException("no id key is registered under " + id);
        }
        return key;
    }

    /** Returns the public id. */
    String id() {
        return id;
    }

    /** Contains only the public id, because plans print their literals. */
    @Override
    public String toString() {
        return "IdKey(" + id + ")";
    }
}
