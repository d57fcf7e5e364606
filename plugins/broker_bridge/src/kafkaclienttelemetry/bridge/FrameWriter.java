package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Encodes frames into a buffer: docs/bridge-protocol.md. */
final class FrameWriter {
    private static final byte[] MAGIC = "KTBP".getBytes(StandardCharsets.US_ASCII);
    private static final int TERMINATING = 1;
    private static final int CODEC_UNKNOWN = 2;
    private static final int NANOS_PER_MS = 1_000_000;
    /** What a receiver keeps of a text. */
    private static final int MAX_CHARS = 512;

    private byte[] buffer = new byte[64 << 10];
    private int size;

    /** Bytes that are encoded and not written. */
    int size() {
        return size;
    }

    void writeTo(OutputStream out) throws IOException {
        out.write(buffer, 0, size);
        size = 0;
    }

    /** A whole Hello frame. */
    byte[] hello(Identity identity, byte[] nonce) {
        size = 0;
        int start = begin(Frames.HELLO);
        bytes(MAGIC);
        int8(Frames.VERSION);
        int8(Frames.VERSION);
        bytes(identity.id);
        bytes(nonce);
        int32(identity.nodeId);
        text(identity.clusterId);
        text(identity.version);
        return taken(start);
    }

    /** A whole Proof frame. */
    byte[] proof(byte[] proof) {
        size = 0;
        int start = begin(Frames.PROOF);
        bytes(proof);
        return taken(start);
    }

    void statistics(long[] values) {
        int start = begin(Frames.STATISTICS);
        int8(values.length);
        for (long value : values) {
            int64(value);
        }
        end(start, 0);
    }

    /**
     * A Push frame.
     *
     * @param withMetrics whether the metrics are copied; if not, the caller writes them after it
     */
    void push(Push push, boolean withMetrics) {
        int start = size;
        try {
            begin(Frames.PUSH);
            int8((push.terminating ? TERMINATING : 0) | (push.codecIsUnknown() ? CODEC_UNKNOWN : 0));
            int64(push.sequence);
            int64(push.receivedAtMs * NANOS_PER_MS);
            int64(push.instanceId.getMostSignificantBits());
            int64(push.instanceId.getLeastSignificantBits());
            int32(push.port);
            int32(push.correlationId);
            int32(push.intervalMs);
            text(push.clientId);
            text(push.principal == null ? "" : push.principal.toString());
            text(push.address == null ? "" : push.address.getHostAddress());
            text(push.listener);
            text(push.securityProtocol);
            text(push.softwareName);
            text(push.softwareVersion);
            text(push.connectionId);
            if (withMetrics) {
                bytes(push.metrics);
                end(start, 0);
            } else {
                end(start, push.metrics.length);
            }
        } catch (RuntimeException error) {
            size = start; // a part of a frame would break the connection
            throw error;
        }
    }

    private int begin(byte type) {
        int start = size;
        int32(0);
        int8(type);
        return start;
    }

    private void end(int start, int following) {
        int length = size - start - 4 + following;
        int end = size;
        size = start;
        int32(length);
        size = end;
    }

    private byte[] taken(int start) {
        end(start, 0);
        byte[] frame = Arrays.copyOfRange(buffer, start, size);
        size = 0;
        return frame;
    }

    private void int8(int value) {
        room(1);
        buffer[size++] = (byte) value;
    }

    private void int16(int value) {
        int8(value >>> 8);
        int8(value);
    }

    private void int32(int value) {
        int16(value >>> 16);
        int16(value);
    }

    private void int64(long value) {
        int32((int) (value >>> 32));
        int32((int) value);
    }

    private void bytes(byte[] value) {
        room(value.length);
        System.arraycopy(value, 0, buffer, size, value.length);
        size += value.length;
    }

    private void text(String value) {
        String text = value == null ? "" : value;
        int length = Math.min(text.length(), MAX_CHARS);
        int start = size;
        int16(length);
        room(length);
        for (int index = 0; index < length; index++) {
            char character = text.charAt(index);
            if (character > 0x7f) {
                size = start; // rare, so nearly every text needs no array of its own
                byte[] encoded = text.substring(0, length).getBytes(StandardCharsets.UTF_8);
                int16(encoded.length);
                bytes(encoded);
                return;
            }
            buffer[size++] = (byte) character;
        }
    }

    private void room(int needed) {
        if (buffer.length - size < needed) {
            buffer = Arrays.copyOf(buffer, Math.max(buffer.length * 2, size + needed));
        }
    }
}
