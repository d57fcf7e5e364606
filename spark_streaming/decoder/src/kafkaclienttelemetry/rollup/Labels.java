package kafkaclienttelemetry.rollup;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;

/** What a resource says of its client, and what that gives to the ids of its series. */
final class Labels {
    static final int CLIENT_INSTANCE_ID = 0;
    static final int CLIENT_ID = 1;
    static final int CLIENT_SOFTWARE_NAME = 2;
    static final int CLIENT_SOFTWARE_VERSION = 3;
    static final int PRINCIPAL = 4;
    static final int GROUP_ID = 5;
    static final int CLUSTER_ID = 6;

    /** In the order of an entry's columns. */
    static final String[] NAMES = {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "principal",
        "group_id",
        "cluster_id",
        "client_source_address",
        "client_rack",
        "group_instance_id",
        "transactional_id",
        "broker_id",
    };

    private static final Map<UTF8String, Integer> INDEX = new HashMap<>();

    static {
        for (int index = 0; index < NAMES.length; index++) {
            INDEX.put(UTF8String.fromString(NAMES[index]), index);
        }
    }

    private final UTF8String[] values = new UTF8String[NAMES.length];
    private long seriesSeed;
    private long fleetSeed;

    /** Takes an attribute if it is one of the labels; of equal ones the last counts. */
    void take(Attribute attribute) {
        Integer index = INDEX.get(attribute.key());
        if (index != null) {
            values[index] = Text.storable(attribute.text());
        }
    }

    /** Notes that all labels were taken. */
    void complete(UTF8String fallbackInstance) {
        UTF8String instance = values[CLIENT_INSTANCE_ID];
        if (instance == null || instance.numBytes() == 0) {
            boolean isThere = fallbackInstance != null && fallbackInstance.numBytes() > 0;
            values[CLIENT_INSTANCE_ID] = isThere ? Text.storable(fallbackInstance) : null;
        }
        fleetSeed = Text.hashAll(
                Text.SEED, get(CLUSTER_ID), get(CLIENT_SOFTWARE_NAME), get(CLIENT_SOFTWARE_VERSION));
        seriesSeed = Text.hashAll(fleetSeed, get(CLIENT_ID), get(PRINCIPAL), get(GROUP_ID));
    }

    UTF8String get(int label) {
        return values[label];
    }

    UTF8String instance() {
        return values[CLIENT_INSTANCE_ID];
    }

    /** The id of a metric's series over the whole fleet, from the hash of the metric's name. */
    long fleetId(long metric) {
        return XXH64.hashLong(metric, fleetSeed);
    }

    /** What the ids of a metric's series begin with, from the hash of the metric's name. */
    long seriesSeed(long metric) {
        return XXH64.hashLong(metric, seriesSeed);
    }
}
