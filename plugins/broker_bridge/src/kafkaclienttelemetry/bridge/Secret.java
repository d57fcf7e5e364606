package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** The secret that bridge and receiver share. It proves both ends, and never travels itself. */
final class Secret {
    static final int PROOF_BYTES = 32;
    static final String BRIDGE = "kafka-telemetry bridge 1\0";
    static final String RECEIVER = "kafka-telemetry receiver 1\0";

    private static final int MIN_CHARS = 16;
    private static final int MAX_FILE_BYTES = 4096;

    private Secret() {}

    /** Reads the first line of the token's file, anew for each connection: it may change. */
    static byte[] read(Path file) throws IOException {
        byte[] content;
        try (InputStream in = Files.newInputStream(file)) {
            content = in.readNBytes(MAX_FILE_BYTES);
        } catch (IOException error) {
            throw new IOException(BridgeConfig.TOKEN_FILE + ": can't read " + file, error);
        }
        String token = new String(content, StandardCharsets.UTF_8).strip().split("\\s", 2)[0];
        if (token.length() < MIN_CHARS) {
            throw new IOException(
                    BridgeConfig.TOKEN_FILE + ": " + file + " has a token of less than 16 characters");
        }
        return token.getBytes(StandardCharsets.UTF_8);
    }

    /** The proof of one end: HMAC-SHA256 over its name, the Hello and the Challenge. */
    static byte[] proof(byte[] secret, String end, byte[] hello, byte[] challenge)
            throws GeneralSecurityException {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret, "HmacSHA256"));
        mac.update(end.getBytes(StandardCharsets.US_ASCII));
        mac.update(hello);
        return mac.doFinal(challenge);
    }

    /** Whether a frame holds a proof at an offset, in a time that tells nothing. */
    static boolean matches(byte[] proof, byte[] frame, int at) {
        return MessageDigest.isEqual(proof, Arrays.copyOfRange(frame, at, at + PROOF_BYTES));
    }
}
