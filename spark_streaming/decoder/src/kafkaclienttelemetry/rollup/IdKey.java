package kafkaclienttelemetry.rollup;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The secret key of one database's ids, which {@link SipHash} takes.
 *
 * <p>The driver registers it under its public id. Queries name that id, and {@link OtlpFunctions} puts the key
 * itself into the plan, so that tasks carry it and plans, event logs and Spark's pages show only the id.
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
     * @param id what queries call it
     * @param secret 16 random bytes
     * @throws IllegalArgumentException if the secret has another length
     */
    public static void register(String id, byte[] secret) {
        if (secret.length != BYTES) {
            throw new IllegalArgumentException("the key of ids has " + secret.length + " bytes, not " + BYTES);
        }
        KEYS.put(id, new IdKey(id, secret));
    }

    /** The key of this id, which must be registered. */
    static IdKey of(String id) {
        IdKey key = KEYS.get(id);
        if (key == null) {
            throw new IllegalArgumentException("no key of ids is registered under " + id);
        }
        return key;
    }

    /** The public id only: plans print their literals. */
    @Override
    public String toString() {
        return "IdKey(" + id + ")";
    }
}
