package kafkaclienttelemetry.bridge;

/** Who the bridge is: its own random id, and its broker. */
final class Identity {
    static final int ID_BYTES = 16;

    /** Random, so that a second instance in the same broker is another bridge. */
    final byte[] id;
    /** The broker's node id, -1 while it is not known. */
    final int nodeId;
    /** The cluster's id, empty while it is not known. */
    final String clusterId;
    /** The version of the jar. */
    final String version;

    Identity(byte[] id, int nodeId, String clusterId) {
        this.id = id;
        this.nodeId = nodeId;
        this.clusterId = clusterId;
        String found = Identity.class.getPackage().getImplementationVersion();
        version = found == null ? "" : found;
    }

    /** The id in hexadecimal. */
    String text() {
        StringBuilder text = new StringBuilder();
        for (byte value : id) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }
}
