package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import kafkaclienttelemetry.bridge.Counters.Count;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends pushes to one receiver.
 *
 * <p>Its thread connects, writes and waits; after a connection broke, what was not acknowledged
 * goes first. What is held here has taken its room in the budget, and gives it back once.
 */
final class Link implements Runnable {
    private static final long FIRST_BACKOFF_NS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long MAX_BACKOFF_NS = TimeUnit.SECONDS.toNanos(5);
    /** After so long without a connection, the pushes go to the other receivers. */
    private static final long HAND_OVER_NS = TimeUnit.SECONDS.toNanos(3);
    /** After so long without an acknowledgement that is due, the receiver counts as hung. */
    private static final long HUNG_NS = TimeUnit.SECONDS.toNanos(10);
    private static final long LOGGED_NS = TimeUnit.MINUTES.toNanos(5);
    /**
     * While pushes come, the threads look by themselves after so long, and nobody wakes them: one
     * writes pushes, the connection's reads acknowledgements.
     */
    static final long REST_NS = TimeUnit.MILLISECONDS.toNanos(100);
    /** Rests without a push after which the thread sleeps until a push comes. */
    private static final int MAX_EMPTY_RESTS = 20;

    // What the thread sleeps for. Whoever brings it wakes the thread.
    private static final int NOTHING = 0;
    private static final int PUSHES = 1;
    private static final int ROOM = 2;

    private final Logger log = LoggerFactory.getLogger(Bridge.class);
    private final Delivery delivery;
    private final Counters counters;
    private final BridgeConfig config;
    private final Endpoint endpoint;
    private final SocketAddress address;
    private final long seed;
    private final Thread thread;
    private final Queue<Push> queue = new ConcurrentLinkedQueue<>();
    private final AtomicInteger sleepsFor = new AtomicInteger(NOTHING);
    private final ArrayDeque<Push> again = new ArrayDeque<>(); // the thread's own

    private volatile Connection connection;
    private volatile boolean connected;
    private volatile boolean ended;
    private volatile boolean finished; // the thread has ended
    private volatile boolean handOver;
    private volatile boolean statisticsDue;
    private boolean started; // the keeper's own
    private long downSince = System.nanoTime();
    private long loggedAt;
    private String logged;

    /** Makes a link to one of an endpoint's addresses. */
    Link(Delivery delivery, BridgeConfig config, Endpoint endpoint, SocketAddress address) {
        this.delivery = delivery;
        this.config = config;
        this.endpoint = endpoint;
        this.address = address;
        counters = delivery.counters();
        seed = address.toString().hashCode() * 0x9e3779b97f4a7c15L;
        thread = new Thread(this, "telemetry-bridge-" + text());
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
    }

    BridgeConfig config() {
        return config;
    }

    SocketAddress address() {
        return address;
    }

    long seed() {
        return seed;
    }

    boolean isConnected() {
        return connected;
    }

    void startOnce() {
        if (!started) {
            started = true;
            thread.start();
        }
    }

    /** Takes a push. Never waits. */
    void offer(Push push) {
        queue.add(push);
        if (finished) { // the caller found this link before another one took its place
            for (Push left = queue.poll(); left != null; left = queue.poll()) {
                settle(left);
            }
        } else {
            wakeFor(PUSHES);
        }
    }

    /** Whether the thread sleeps until the receiver has acknowledged pushes. */
    boolean needsRoom() {
        return sleepsFor.get() == ROOM;
    }

    /** Has the thread go on: the receiver has acknowledged pushes. */
    void roomMade() {
        wakeFor(ROOM);
    }

    /** Has the counters sent, soon. */
    void sendStatistics() {
        statisticsDue = true;
        wake();
    }

    /**
     * Ends the link, in the background.
     *
     * @param handOver whether its pushes go to other links, or are dropped
     */
    void end(boolean handOver) {
        this.handOver = handOver;
        ended = true;
        Connection current = connection;
        if (current != null) {
            current.close();
        }
        wake();
    }

    /** Breaks the connection off if the receiver hangs: the thread may be stuck in a write. */
    void watch(long now) {
        Connection current = connection;
        if (current != null) {
            current.watch(now, HUNG_NS);
        }
    }

    void wake() {
        sleepsFor.set(NOTHING);
        LockSupport.unpark(thread);
    }

    private void wakeFor(int reason) {
        if (sleepsFor.get() == reason && sleepsFor.compareAndSet(reason, NOTHING)) {
            LockSupport.unpark(thread);
        }
    }

    @Override
    public void run() {
        long backoff = FIRST_BACKOFF_NS;
        while (!ended) {
            try {
                Transport transport = Transport.of(config, endpoint, address);
                connection = new Connection(this, config, transport, counters, delivery.budget());
                connection.open(delivery.identity());
                connected = true;
                backoff = FIRST_BACKOFF_NS;
                logged = null;
                log.info("telemetry bridge connected to receiver {}", text());
                statisticsDue = true;
                serve();
            } catch (Throwable error) { // without its thread, the link would only fill the queue
                note(error);
            } finally {
                disconnect();
            }
            if (!ended) {
                long pause = backoff / 2 + ThreadLocalRandom.current().nextLong(backoff / 2 + 1);
                LockSupport.parkNanos(this, pause);
                backoff = Math.min(backoff * 2, MAX_BACKOFF_NS);
                if (System.nanoTime() - downSince > HAND_OVER_NS && delivery.linksConnected() > 0) {
                    handOver();
                }
            }
        }
        finished = true;
        for (Push push = next(); push != null; push = next()) {
            settle(push);
        }
    }

    /** Decides on a push that this link can't send any more. */
    private void settle(Push push) {
        if (handOver) {
            delivery.offer(push);
        } else {
            delivery.dropStopped(push);
        }
    }

    private void disconnect() {
        if (connected) {
            connected = false;
            downSince = System.nanoTime();
        }
        Connection last = connection;
        connection = null;
        if (last != null) {
            last.close();
            // In front of what waits, in their order.
            ArrayDeque<Push> unacknowledged = last.takeUnacknowledged();
            while (!unacknowledged.isEmpty()) {
                counters.add(Count.RESENT);
                again.addFirst(unacknowledged.removeLast());
            }
        }
    }

    /** Gives the pushes to the links that clients have now; some may come back to this one. */
    private void handOver() {
        for (int count = again.size() + queue.size(); count > 0; count--) {
            Push push = next();
            if (push == null) {
                return;
            }
            delivery.offer(push);
        }
    }

    private Push next() {
        Push push = again.poll();
        return push == null ? queue.poll() : push;
    }

    /** Writes until the connection breaks or the link ends. */
    private void serve() throws IOException {
        Connection current = connection;
        int emptyRests = 0;
        while (!ended) {
            if (statisticsDue) {
                statisticsDue = false;
                current.sendStatistics(new BridgeMetrics(delivery).values());
            }
            Push push = current.hasRoom() ? next() : null;
            if (push != null) {
                send(current, push);
                emptyRests = 0;
                continue;
            }
            current.flush();
            if (!current.hasRoom()) {
                sleepFor(ROOM, current);
            } else if (emptyRests < MAX_EMPTY_RESTS) {
                emptyRests++;
                LockSupport.parkNanos(this, REST_NS);
            } else {
                sleepFor(PUSHES, current);
            }
            current.check();
        }
        current.flush();
    }

    private void sleepFor(int reason, Connection current) {
        sleepsFor.set(reason);
        boolean isThere = reason == ROOM ? current.hasRoom() : !queue.isEmpty();
        if (!isThere && !statisticsDue && !ended) {
            if (reason == ROOM) {
                current.readNow();
            }
            LockSupport.park(this);
        }
        sleepsFor.set(NOTHING);
    }

    private void send(Connection current, Push push) throws IOException {
        if (push.metrics.length > current.maxPushBytes()) {
            delivery.budget().giveBack(push.bytes());
            counters.add(Count.DROPPED_TOO_LARGE);
            return;
        }
        try {
            current.encode(push);
        } catch (RuntimeException error) { // a principal of the operator's own class, say
            delivery.budget().giveBack(push.bytes());
            counters.add(Count.DROPPED_ERROR);
            return;
        }
        counters.add(Count.FORWARDED);
        current.send(push);
    }

    /** Logs a problem when it is a new one, and then rarely. */
    private void note(Throwable error) {
        Connection last = connection;
        String problem = last == null ? error.toString() : last.reason(error);
        long now = System.nanoTime();
        if (!ended && (!problem.equals(logged) || now - loggedAt > LOGGED_NS)) {
            log.warn("telemetry receiver {}: {}", text(), problem);
            logged = problem;
            loggedAt = now;
        }
    }

    private String text() {
        if (endpoint.isUnix()) {
            return endpoint.toString();
        }
        InetSocketAddress inet = (InetSocketAddress) address;
        return endpoint.host + "/" + inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }
}
