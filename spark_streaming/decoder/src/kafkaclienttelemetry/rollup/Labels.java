package kafkaclienttelemetry.rollup;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Labels of a client from a resource, with the common prefix of its series hashes. */
final class Labels {
    static final int CLIENT_INSTANCE_ID = 0;
    static final int CLIENT_ID = 1;
    static final int CLIENT_SOFTWARE_NAME = 2;
    static final int CLIENT_SOFTWARE_VERSION = 3;
    static final int PRINCIPAL = 4;
    static final int GROUP_ID = 5;
    static final int CLUSTER_ID = 6;

    /** Names in the order of an entry's columns. */
    static final String[] NAMES = {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "principal",
        "group_id",
        "cluster_id",
        "client_source_address",
        "client_source_port",
        "client_rack",
        "group_instance_id",
        "group_member_id",
        "transactional_id",
        "application_id",
        "broker_id",
        "client_owner",
    };

    private static final Map<UTF8String, Integer> INDEX = new HashMap<>();

    static {
        for (int index = 0; index < NAMES.length; index++) {
            INDEX.put(UTF8String.fromString(NAMES[index]), index);
        }
    }

    private final UTF8String[] values = new UTF8String[NAMES.length];
    private final IdKey key;
    /** State of the hash that all series of these labels start from. */
    final SipHash series = new SipHash();

    Labels(IdKey key) {
        this.key = key;
    }

    /** Stores an attribute if it is a label. The last of equal ones counts. */
    void put(Attribute attribute) {
        Integer index = INDEX.get(attribute.key());
        if (index != null) {
            values[index] = Text.storable(attribute.text(), key);
        }
    }

    /** Completes the labels after the last attribute. */
    void complete(UTF8String fallbackInstance) {
        UTF8String instance = values[CLIENT_INSTANCE_ID];
        if (instance == null || instance.numBytes() == 0) {
            boolean isThere = fallbackInstance != null && fallbackInstance.numBytes() > 0;
            values[CLIENT_INSTANCE_ID] = isThere ? Text.storableOfAnyBytes(fallbackInstance, key) : null;
        }
        series.begin(key, SipHash.SERIES)
                .text(get(CLUSTER_ID))
                .text(get(CLIENT_SOFTWARE_NAME))
                .text(get(CLIENT_SOFTWARE_VERSION))
                .text(get(CLIENT_ID))
                .text(get(PRINCIPAL))
                .text(get(GROUP_ID));
    }

    UTF8String get(int label) {
        return values[label];
    }

    UTF8String instance() {
        return values[CLIENT_INSTANCE_ID];
    }
}
