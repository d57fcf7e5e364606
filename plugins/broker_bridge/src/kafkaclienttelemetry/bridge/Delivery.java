package kafkaclienttelemetry.bridge;

import java.lang.management.ManagementFactory;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.security.SecureRandom;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.StandardMBean;
import kafkaclienttelemetry.bridge.Counters.Count;
import org.apache.kafka.common.Uuid;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delivers pushes to receivers.
 *
 * <p>A keeper thread does what may take time: it looks names up, makes and ends the links, and
 * breaks off a connection whose receiver hangs. Each link has a thread that writes and one that
 * reads. All are daemons.
 */
final class Delivery implements Runnable {
    private static final long TICK_NS = TimeUnit.SECONDS.toNanos(1);
    private static final long LOOK_UP_NS = TimeUnit.SECONDS.toNanos(30);
    private static final long STATISTICS_NS = TimeUnit.SECONDS.toNanos(10);
    private static final long DROPS_LOGGED_NS = TimeUnit.MINUTES.toNanos(1);
    /** For what waits when the plugin is closed. */
    private static final long FLUSH_NS = TimeUnit.SECONDS.toNanos(2);
    private static final long FLUSH_CHECK_NS = TimeUnit.MILLISECONDS.toNanos(20);
    /** The most addresses that are used of those that all names have. */
    private static final int MAX_LINKS = 32;
    private static final String MBEAN = "kafka.telemetry.bridge:type=Bridge";
    private static final Link[] NO_LINKS = {};

    private final Logger log = LoggerFactory.getLogger(Bridge.class);
    private final Counters counters;
    private final Budget budget;
    private final Identity identity;
    private final Thread keeper = new Thread(this, "telemetry-bridge");
    /** Pushes that came before the first address was known. */
    private final Queue<Push> unrouted = new ConcurrentLinkedQueue<>();

    private volatile Link[] links = NO_LINKS;
    private volatile BridgeConfig config;
    private volatile boolean closed;
    private BridgeConfig used; // of the links; the keeper's own
    private long lookedUpAt;
    private long statisticsAt;
    private long dropsLoggedAt;
    private long dropsLogged;

    Delivery(BridgeConfig config, int nodeId, String clusterId, Counters counters) {
        this.config = config;
        this.counters = counters;
        budget = new Budget(config.queueItems, config.queueBytes);
        byte[] id = new byte[Identity.ID_BYTES];
        new SecureRandom().nextBytes(id);
        identity = new Identity(id, nodeId, clusterId);
        keeper.setDaemon(true);
        keeper.setContextClassLoader(null); // a removed plugin keeps no class loader
    }

    void start() {
        keeper.start();
    }

    Budget budget() {
        return budget;
    }

    Counters counters() {
        return counters;
    }

    Identity identity() {
        return identity;
    }

    int linksConnected() {
        int connected = 0;
        for (Link link : links) {
            if (link.isConnected()) {
                connected++;
            }
        }
        return connected;
    }

    /** Hands a push, whose room is taken, to the link of its client. Never waits. */
    void offer(Push push) {
        Link link = route(push.instanceId);
        if (link == null) {
            unrouted.add(push);
        } else {
            link.offer(push);
        }
    }

    /** Uses another configuration, soon. */
    void reconfigure(BridgeConfig changed) {
        budget.resize(changed.queueItems, changed.queueBytes);
        config = changed;
        LockSupport.unpark(keeper);
    }

    /** Ends, in the background; what waits is sent if that takes a short time. */
    void close() {
        closed = true;
        LockSupport.unpark(keeper);
    }

    /** Counts a push that was dropped because the plugin was closed, and gives its room back. */
    void dropStopped(Push push) {
        budget.giveBack(push.bytes());
        counters.add(Count.DROPPED_STOPPED);
    }

    /**
     * Returns the link for a client, null if no address is known.
     *
     * <p>The same for each push of a client while the same receivers are connected (rendezvous
     * hashing), on every broker.
     */
    private Link route(Uuid instanceId) {
        Link[] all = links;
        if (all.length < 2) {
            return all.length == 0 ? null : all[0];
        }
        long key = instanceId.getMostSignificantBits() ^ instanceId.getLeastSignificantBits();
        Link best = null;
        Link bestConnected = null;
        long bestWeight = Long.MIN_VALUE;
        long bestConnectedWeight = Long.MIN_VALUE;
        for (Link link : all) {
            long weight = mix(key ^ link.seed());
            if (best == null || weight > bestWeight) {
                best = link;
                bestWeight = weight;
            }
            if (link.isConnected() && (bestConnected == null || weight > bestConnectedWeight)) {
                bestConnected = link;
                bestConnectedWeight = weight;
            }
        }
        return bestConnected == null ? best : bestConnected;
    }

    /** The finalizer of SplitMix64. */
    private static long mix(long value) {
        value = (value ^ (value >>> 30)) * 0xbf58476d1ce4e5b9L;
        value = (value ^ (value >>> 27)) * 0x94d049bb133111ebL;
        return value ^ (value >>> 31);
    }

    @Override
    public void run() {
        ObjectName name = register();
        while (!closed) {
            try {
                tick(System.nanoTime());
            } catch (Throwable error) {
                log.error("internal error of the telemetry bridge", error);
            }
            LockSupport.parkNanos(this, TICK_NS);
        }
        finish();
        unregister(name);
    }

    private void tick(long now) {
        BridgeConfig current = config;
        if (current != used || now - lookedUpAt >= LOOK_UP_NS || links.length == 0) {
            connect(current);
            used = current;
            lookedUpAt = now;
        }
        if (links.length > 0) {
            for (Push push = unrouted.poll(); push != null; push = unrouted.poll()) {
                offer(push);
            }
        }
        for (Link link : links) {
            link.watch(now);
        }
        if (now - statisticsAt >= STATISTICS_NS) {
            statisticsAt = now;
            for (Link link : links) {
                link.sendStatistics();
            }
        }
        logDrops(now);
    }

    /** Makes a link for each address that the receivers have now, and ends the other links. */
    private void connect(BridgeConfig current) {
        Map<SocketAddress, Link> known = new LinkedHashMap<>();
        for (Link link : links) {
            if (link.config() == current) {
                known.put(link.address(), link);
            }
        }
        Map<SocketAddress, Link> wanted = new LinkedHashMap<>();
        boolean complete = true;
        for (Endpoint endpoint : current.receivers) {
            try {
                for (SocketAddress address : endpoint.addresses()) {
                    Link link = known.get(address);
                    if (wanted.size() < MAX_LINKS) {
                        wanted.put(
                                address, link == null ? new Link(this, current, endpoint, address) : link);
                    }
                }
            } catch (UnknownHostException error) {
                complete = false;
                log.warn("the address of telemetry receiver {} is not known", endpoint);
            }
        }
        if (!complete) {
            known.forEach(wanted::putIfAbsent); // what was known once may still be there
        }
        Link[] before = links;
        links = wanted.values().toArray(NO_LINKS);
        for (Link link : links) {
            link.startOnce();
        }
        for (Link link : before) {
            if (!wanted.containsValue(link)) {
                link.end(true);
            }
        }
    }

    /** Logs drops at most once a minute, because a line for each would fill the broker's log. */
    private void logDrops(long now) {
        long drops =
                counters.get(Count.DROPPED_FULL)
                        + counters.get(Count.DROPPED_TOO_LARGE)
                        + counters.get(Count.DROPPED_ERROR)
                        + counters.get(Count.REFUSED);
        if (drops > dropsLogged && (dropsLogged == 0 || now - dropsLoggedAt >= DROPS_LOGGED_NS)) {
            log.warn(
                    "telemetry pushes dropped since the start: queue_full={} too_large={} error={} "
                            + "refused_by_receiver={}; connected to {} of {} receivers",
                    counters.get(Count.DROPPED_FULL),
                    counters.get(Count.DROPPED_TOO_LARGE),
                    counters.get(Count.DROPPED_ERROR),
                    counters.get(Count.REFUSED),
                    linksConnected(),
                    links.length);
            dropsLogged = drops;
            dropsLoggedAt = now;
        }
    }

    private void finish() {
        long deadline = System.nanoTime() + FLUSH_NS;
        while (linksConnected() > 0 && budget.items() > 0 && System.nanoTime() < deadline) {
            LockSupport.parkNanos(this, FLUSH_CHECK_NS);
        }
        for (Link link : links) {
            link.end(false);
        }
        for (Push push = unrouted.poll(); push != null; push = unrouted.poll()) {
            dropStopped(push);
        }
    }

    private ObjectName register() {
        try {
            MBeanServer server = ManagementFactory.getPlatformMBeanServer();
            ObjectName name = new ObjectName(MBEAN);
            if (server.isRegistered(name)) { // a plugin that was removed and added again
                name = new ObjectName(MBEAN + ",id=" + identity.text());
            }
            Object metrics = new StandardMBean(new BridgeMetrics(this), BridgeMetricsMBean.class);
            return server.registerMBean(metrics, name).getObjectName();
        } catch (JMException | RuntimeException error) {
            log.warn("the telemetry bridge has no MBean", error);
            return null;
        }
    }

    private void unregister(ObjectName name) {
        try {
            if (name != null) {
                ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
            }
        } catch (JMException | RuntimeException error) {
            log.warn("the telemetry bridge's MBean stays", error);
        }
    }
}
