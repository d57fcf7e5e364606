package kafkaclienttelemetry.bridge;

import java.nio.file.Path;
import java.nio.file.InvalidPathException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.config.ConfigException;

/**
 * The bridge's settings, read from the broker's properties.
 *
 * <p>A broker gives strings at its start, and values of any type to a reporter that is added later.
 */
final class BridgeConfig {
    private static final String PREFIX = "kafka.telemetry.bridge.";
    static final String RECEIVERS = PREFIX + "receivers";
    static final String TOKEN_FILE = PREFIX + "token.file";
    static final String TLS = PREFIX + "tls";
    static final String TLS_CA_FILE = PREFIX + "tls.ca.file";
    static final String QUEUE_ITEMS = PREFIX + "queue.items";
    static final String QUEUE_BYTES = PREFIX + "queue.bytes";

    /** The keys that may change while the broker runs: all. */
    static final Set<String> KEYS =
            Set.of(RECEIVERS, TOKEN_FILE, TLS, TLS_CA_FILE, QUEUE_ITEMS, QUEUE_BYTES);

    private static final int MAX_RECEIVERS = 16;
    private static final String DEFAULT_RECEIVER = "127.0.0.1:9714";
    private static final long DEFAULT_QUEUE_ITEMS = 10_000;
    private static final long DEFAULT_QUEUE_BYTES = 32L << 20;

    /** Where receivers listen. */
    final List<Endpoint> receivers;
    /** The file of the secret that bridge and receiver share. */
    final Path tokenFile;
    /** Whether connections use TLS. */
    final boolean tls;
    /** Certificates of the authorities that receivers are trusted by, or null: Java's. */
    final Path caFile;
    /** The most pushes that may wait. */
    final long queueItems;
    /** The most bytes of pushes that may wait. */
    final long queueBytes;

    private BridgeConfig(
            List<Endpoint> receivers,
            Path tokenFile,
            boolean tls,
            Path caFile,
            long queueItems,
            long queueBytes) {
        this.receivers = receivers;
        this.tokenFile = tokenFile;
        this.tls = tls;
        this.caFile = caFile;
        this.queueItems = queueItems;
        this.queueBytes = queueBytes;
    }

    /**
     * Reads the settings.
     *
     * @throws ConfigException a value is wrong; the text names the key, the value and the fix
     */
    static BridgeConfig parse(Map<String, ?> configs) {
        boolean tls = flag(configs, TLS);
        List<Endpoint> receivers = receivers(text(configs, RECEIVERS, DEFAULT_RECEIVER), tls);
        Path caFile = path(configs, TLS_CA_FILE);
        if (caFile != null && !tls) {
            throw new ConfigException(TLS_CA_FILE, caFile, "has no effect without " + TLS + "=true");
        }
        Path tokenFile = path(configs, TOKEN_FILE);
        if (tokenFile == null) {
            throw new ConfigException(
                    TOKEN_FILE,
                    null,
                    "is required: the file of the secret that the receiver has as bridge.token.file");
        }
        return new BridgeConfig(
                receivers,
                tokenFile,
                tls,
                caFile,
                number(configs, QUEUE_ITEMS, DEFAULT_QUEUE_ITEMS, 1, 10_000_000),
                number(configs, QUEUE_BYTES, DEFAULT_QUEUE_BYTES, 1 << 20, 1L << 40));
    }

    /** Whether a server with these properties is a KRaft broker; no other takes telemetry. */
    static boolean isBroker(Map<String, ?> configs) {
        // A string such as "broker,controller", or a list of roles.
        return String.valueOf(configs.get("process.roles")).matches(".*\\bbroker\\b.*");
    }

    private static List<Endpoint> receivers(String text, boolean tls) {
        List<Endpoint> found = new ArrayList<>();
        for (String part : text.split(",")) {
            Endpoint endpoint = Endpoint.parse(part.trim());
            if (endpoint == null) {
                throw new ConfigException(
                        RECEIVERS,
                        text,
                        "expected HOST:PORT,HOST:PORT or unix:/PATH, for example " + DEFAULT_RECEIVER);
            }
            if (endpoint.isUnix() && UnixSocket.address(endpoint.path) == null) {
                throw new ConfigException(RECEIVERS, text, "a Unix socket needs Java 16 or newer");
            }
            if (!tls && !endpoint.isLocal()) {
                throw new ConfigException(
                        RECEIVERS, text, endpoint + " is not on this machine: set " + TLS + "=true");
            }
            if (found.contains(endpoint)) {
                throw new ConfigException(RECEIVERS, text, endpoint + " is given twice");
            }
            found.add(endpoint);
        }
        if (found.size() > MAX_RECEIVERS) {
            throw new ConfigException(RECEIVERS, text, "at most " + MAX_RECEIVERS + " are possible");
        }
        return List.copyOf(found);
    }

    private static Path path(Map<String, ?> configs, String key) {
        String text = text(configs, key, "");
        try {
            return text.isEmpty() ? null : Path.of(text);
        } catch (InvalidPathException error) {
            throw new ConfigException(key, text, "is no path of a file");
        }
    }

    private static boolean flag(Map<String, ?> configs, String key) {
        String text = text(configs, key, "false");
        if (!text.equals("true") && !text.equals("false")) {
            throw new ConfigException(key, text, "expected true or false");
        }
        return text.equals("true");
    }

    private static long number(Map<String, ?> configs, String key, long standard, long least, long most) {
        String text = text(configs, key, Long.toString(standard));
        try {
            long value = Long.parseLong(text);
            if (value >= least && value <= most) {
                return value;
            }
        } catch (NumberFormatException error) {
            // the same fix
        }
        throw new ConfigException(key, text, "expected a whole number from " + least + " to " + most);
    }

    private static String text(Map<String, ?> configs, String key, String standard) {
        Object value = configs.get(key);
        String text = value == null ? "" : value.toString().trim();
        return text.isEmpty() ? standard : text;
    }
}
