package kafkaclienttelemetry.bridge;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Where receivers listen: a host, which may have several addresses, and a port; or the file of a
 * Unix socket.
 */
final class Endpoint {
    private static final Pattern HOST_PORT =
            Pattern.compile("(?:\\[([0-9A-Fa-f:.]{2,45})\\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})");
    private static final Pattern LOOPBACK =
            Pattern.compile("localhost|127\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}|::1");

    /** The longest path that every system takes. */
    private static final Pattern UNIX = Pattern.compile("unix:(/.{1,99})");

    /** The host's name; empty for a Unix socket. */
    final String host;
    final int port;
    /** The Unix socket's file, or null. */
    final String path;

    private Endpoint(String host, int port, String path) {
        this.host = host;
        this.port = port;
        this.path = path;
    }

    /** Parses HOST:PORT, [IPV6]:PORT or unix:/PATH; null if the text is none of them. */
    static Endpoint parse(String text) {
        Matcher unix = UNIX.matcher(text);
        if (unix.matches()) {
            return new Endpoint("", 0, unix.group(1));
        }
        Matcher matcher = HOST_PORT.matcher(text);
        if (!matcher.matches()) {
            return null;
        }
        int port = Integer.parseInt(matcher.group(3));
        String host = matcher.group(1) == null ? matcher.group(2) : matcher.group(1);
        return port >= 1 && port <= 65_535 ? new Endpoint(host, port, null) : null;
    }

    /** Whether it is a Unix socket. */
    boolean isUnix() {
        return path != null;
    }

    /** Whether only this machine can be meant; a name is not looked up. */
    boolean isLocal() {
        return isUnix() || LOOPBACK.matcher(host).matches();
    }

    /**
     * Looks the addresses up. Of a local name there is one, because localhost may have two, and is
     * one receiver.
     *
     * @throws UnknownHostException the name has no address now
     */
    List<SocketAddress> addresses() throws UnknownHostException {
        if (isUnix()) {
            return List.of(UnixSocket.address(path));
        }
        List<SocketAddress> found = new ArrayList<>();
        for (InetAddress address : InetAddress.getAllByName(host)) {
            found.add(new InetSocketAddress(address, port));
        }
        return isLocal() ? found.subList(0, 1) : found;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Endpoint && toString().equals(other.toString());
    }

    @Override
    public int hashCode() {
        return toString().hashCode();
    }

    @Override
    public String toString() {
        if (isUnix()) {
            return "unix:" + path;
        }
        return host.indexOf(':') < 0 ? host + ":" + port : "[" + host + "]:" + port;
    }
}
