package kafkaclienttelemetry.bridge;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Where receivers listen: a host, which may have several addresses, and a port. */
final class Endpoint {
    private static final Pattern HOST_PORT =
            Pattern.compile("(?:\\[([0-9A-Fa-f:.]{2,45})\\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})");
    private static final Pattern LOOPBACK =
            Pattern.compile("localhost|127\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}|::1");

    final String host;
    final int port;

    private Endpoint(String host, int port) {
        this.host = host;
        this.port = port;
    }

    /** Parses HOST:PORT or [IPV6]:PORT; null if the text is neither. */
    static Endpoint parse(String text) {
        Matcher matcher = HOST_PORT.matcher(text);
        if (!matcher.matches()) {
            return null;
        }
        int port = Integer.parseInt(matcher.group(3));
        String host = matcher.group(1) == null ? matcher.group(2) : matcher.group(1);
        return port >= 1 && port <= 65_535 ? new Endpoint(host, port) : null;
    }

    /** Whether only this machine can be meant; a name is not looked up. */
    boolean isLoopback() {
        return LOOPBACK.matcher(host).matches();
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
        return host.indexOf(':') < 0 ? host + ":" + port : "[" + host + "]:" + port;
    }
}
