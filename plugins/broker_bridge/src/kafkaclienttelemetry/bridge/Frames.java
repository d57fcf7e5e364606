package kafkaclienttelemetry.bridge;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Types and sizes of frames: docs/bridge-protocol.md. Numbers are big-endian. */
final class Frames {
    static final byte VERSION = 1;

    static final byte HELLO = 1;
    static final byte CHALLENGE = 2;
    static final byte PROOF = 3;
    static final byte WELCOME = 4;
    static final byte PUSH = 5;
    static final byte STATISTICS = 6;
    static final byte ACKNOWLEDGE = 7;
    static final byte REFUSED = 8;

    static final int CHALLENGE_BYTES = 1 + 1 + 32;
    static final int WELCOME_BYTES = 1 + Secret.PROOF_BYTES + 4 + 4;
    /** A push in an Acknowledge: its sequence number, and what became of it. */
    static final int ACKNOWLEDGED_BYTES = 9;
    static final int MAX_ACKNOWLEDGE_BYTES = 3 + 65_535 * ACKNOWLEDGED_BYTES;
    static final int MAX_REASON_BYTES = 1 + 512;

    /** In an Acknowledge: the receiver can't use the push. */
    static final byte REFUSED_PUSH = 2;

    private static final int SHOWN_CHARS = 200;

    private Frames() {}

    /** A frame without its length. */
    static byte[] body(byte[] frame) {
        return Arrays.copyOfRange(frame, 4, frame.length);
    }

    static int int16(byte[] frame, int at) {
        return (frame[at] & 0xff) << 8 | frame[at + 1] & 0xff;
    }

    static int int32(byte[] frame, int at) {
        return ByteBuffer.wrap(frame).getInt(at);
    }

    static long int64(byte[] frame, int at) {
        return ByteBuffer.wrap(frame).getLong(at);
    }

    /** The reason of a Refused, fit for the broker's log. */
    static String reason(byte[] frame) {
        String text = new String(frame, 1, frame.length - 1, StandardCharsets.UTF_8);
        text = text.replaceAll("[^\\x20-\\x7e]", "?");
        return text.substring(0, Math.min(text.length(), SHOWN_CHARS));
    }
}
