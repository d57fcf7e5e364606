package kafkaclienttelemetry.bridge;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import kafkaclienttelemetry.bridge.Counters.Count;

/**
 * One connection to a receiver: the handshake, and what is not acknowledged.
 *
 * <p>The link's thread writes, a thread of its own reads, and any thread may close it.
 */
final class Connection implements Runnable {
    /** Larger metrics are written from their own array. */
    private static final int COPIED_BYTES = 64 << 10;
    private static final int FLUSHED_BYTES = 192 << 10;
    private static final int NONCE_BYTES = 32;

    private final Link link;
    private final BridgeConfig config;
    private final Transport transport;
    private final Counters counters;
    private final Budget budget;
    private final FrameWriter writer = new FrameWriter();
    private final Map<Long, Push> unacknowledged = new LinkedHashMap<>(); // guarded by itself
    private final Thread reader;
    private final long startedAt = System.nanoTime();

    private OutputStream out;
    private DataInputStream in;
    private int maxPushBytes;
    private int window;
    private volatile boolean welcomed;
    private volatile int inFlight;
    private volatile long progressAt;
    private volatile long askedAt; // of the oldest frame without an answer, 0: none
    private volatile String failure;

    Connection(
            Link link,
            BridgeConfig config,
            Transport transport,
            Counters counters,
            Budget budget) {
        this.link = link;
        this.config = config;
        this.transport = transport;
        this.counters = counters;
        this.budget = budget;
        reader = new Thread(this, "telemetry-bridge-acknowledgements");
        reader.setDaemon(true);
        reader.setContextClassLoader(null);
    }

    /** Connects, and proves to each other that both have the secret. */
    void open(Identity identity) throws IOException, GeneralSecurityException {
        byte[] secret = Secret.read(config.tokenFile);
        transport.connect();
        out = transport.out();
        in = new DataInputStream(new BufferedInputStream(transport.in()));

        byte[] nonce = new byte[NONCE_BYTES];
        new SecureRandom().nextBytes(nonce);
        byte[] hello = writer.hello(identity, nonce);
        out.write(hello);
        out.flush();
        byte[] challenge = read(Frames.CHALLENGE, Frames.CHALLENGE_BYTES);
        if (challenge[1] != Frames.VERSION) {
            throw new IOException("it chose version " + challenge[1] + " of the protocol");
        }
        byte[] said = Frames.body(hello);
        out.write(writer.proof(Secret.proof(secret, Secret.BRIDGE, said, challenge)));
        out.flush();
        byte[] welcome = read(Frames.WELCOME, Frames.WELCOME_BYTES);
        if (!Secret.matches(Secret.proof(secret, Secret.RECEIVER, said, challenge), welcome, 1)) {
            throw new IOException("it does not have the token of " + BridgeConfig.TOKEN_FILE);
        }
        maxPushBytes = Frames.int32(welcome, 1 + Secret.PROOF_BYTES);
        window = Frames.int32(welcome, 1 + Secret.PROOF_BYTES + 4);
        if (maxPushBytes < 1 || window < 1) {
            throw new IOException("it takes no pushes");
        }
        progressAt = System.nanoTime();
        welcomed = true;
        reader.start();
    }

    int maxPushBytes() {
        return maxPushBytes;
    }

    /** Whether one more push may be sent before the receiver acknowledges some. */
    boolean hasRoom() {
        return inFlight < window;
    }

    /** Has acknowledgements read at once, because a push waits for room. */
    void readNow() {
        LockSupport.unpark(reader);
    }

    /** Encodes a push; {@link #send} writes it. */
    void encode(Push push) {
        writer.push(push, push.metrics.length <= COPIED_BYTES);
    }

    /** Writes the push that was encoded last, now or with the next ones. */
    void send(Push push) throws IOException {
        synchronized (unacknowledged) {
            if (unacknowledged.isEmpty()) {
                progressAt = System.nanoTime();
            }
            unacknowledged.put(push.sequence, push);
            inFlight = unacknowledged.size();
        }
        if (push.metrics.length > COPIED_BYTES) {
            writer.writeTo(out);
            out.write(push.metrics);
        } else if (writer.size() > FLUSHED_BYTES) {
            writer.writeTo(out);
        }
    }

    void sendStatistics(long[] values) throws IOException {
        writer.statistics(values);
        writer.writeTo(out);
        out.flush();
        if (askedAt == 0) {
            askedAt = System.nanoTime();
        }
    }

    void flush() throws IOException {
        if (writer.size() > 0) {
            writer.writeTo(out);
            out.flush();
        }
        check();
    }

    /** Throws the reason if the connection is broken. */
    void check() throws IOException {
        String problem = failure;
        if (problem != null) {
            throw new IOException(problem);
        }
    }

    /** Ends the connection if the receiver owes an answer for longer than a limit. */
    void watch(long now, long limitNs) {
        if (!welcomed) {
            if (now - startedAt > limitNs) {
                fail("it does not answer");
            }
            return;
        }
        long asked = askedAt;
        if ((inFlight > 0 && now - progressAt > limitNs) || (asked != 0 && now - asked > limitNs)) {
            fail("it acknowledges nothing");
        }
    }

    /** The reason why the connection ended, given what was thrown then. */
    String reason(Throwable error) {
        String problem = failure;
        if (problem == null) {
            problem = error.getMessage();
        }
        return problem == null ? error.toString() : problem;
    }

    /** Ends the connection for a reason. */
    void fail(String problem) {
        if (failure == null) {
            failure = problem;
        }
        close();
        link.wake();
    }

    void close() {
        try {
            transport.close();
        } catch (IOException error) {
            // it is closed all the same
        }
    }

    /** Returns what the receiver has not acknowledged, oldest first, and forgets it. */
    ArrayDeque<Push> takeUnacknowledged() {
        synchronized (unacknowledged) {
            ArrayDeque<Push> taken = new ArrayDeque<>(unacknowledged.values());
            unacknowledged.clear();
            return taken;
        }
    }

    @Override
    public void run() {
        try {
            while (true) {
                byte[] frame = read(Frames.ACKNOWLEDGE, Frames.MAX_ACKNOWLEDGE_BYTES);
                acknowledge(frame);
                if (in.available() == 0 && !link.needsRoom()) {
                    LockSupport.parkNanos(this, Link.REST_NS); // while there is room
                }
            }
        } catch (EOFException error) {
            fail("it closed the connection");
        } catch (IOException | RuntimeException error) {
            fail(String.valueOf(error.getMessage()));
        }
    }

    private void acknowledge(byte[] frame) throws IOException {
        int count = Frames.int16(frame, 1);
        if (frame.length != 3 + count * Frames.ACKNOWLEDGED_BYTES) {
            throw new IOException("it sent a frame of a wrong length");
        }
        int known = 0;
        int refused = 0;
        long size = 0;
        synchronized (unacknowledged) {
            for (int at = 3; at < frame.length; at += Frames.ACKNOWLEDGED_BYTES) {
                Push push = unacknowledged.remove(Frames.int64(frame, at));
                if (push == null) {
                    continue; // taken for another connection already
                }
                known++;
                size += push.bytes();
                if (frame[at + 8] == Frames.REFUSED_PUSH) {
                    refused++;
                }
            }
            inFlight = unacknowledged.size();
        }
        counters.add(Count.REFUSED, refused);
        counters.add(Count.ACKNOWLEDGED, known - refused);
        budget.giveBack(known, size);
        progressAt = System.nanoTime();
        askedAt = 0;
        if (inFlight <= window / 2) { // not for each push that may be sent
            link.roomMade();
        }
    }

    /** Reads a frame without its length; its type is the first byte. */
    private byte[] read(byte type, int maxBytes) throws IOException {
        int length = in.readInt();
        if (length < 1 || length > Math.max(maxBytes, Frames.MAX_REASON_BYTES)) {
            throw new IOException("it is no telemetry receiver, or has another protocol");
        }
        byte[] frame = new byte[length];
        in.readFully(frame);
        if (frame[0] == Frames.REFUSED) {
            throw new IOException("it refuses the bridge: " + Frames.reason(frame));
        }
        if (frame[0] != type || length > maxBytes) {
            throw new IOException("it sent an unexpected frame of type " + frame[0]);
        }
        return frame;
    }
}
