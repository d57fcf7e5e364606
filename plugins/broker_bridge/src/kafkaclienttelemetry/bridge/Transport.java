package kafkaclienttelemetry.bridge;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.SocketAddress;
import java.security.GeneralSecurityException;

/** The bytes of a connection to a receiver: TCP, TLS over it, or a Unix socket. */
interface Transport extends Closeable {
    /** Connects, and encrypts. {@link #close} by another thread ends it. */
    void connect() throws IOException, GeneralSecurityException;

    InputStream in() throws IOException;

    OutputStream out() throws IOException;

    /** Makes the transport to an address of a receiver. */
    static Transport of(BridgeConfig config, Endpoint endpoint, SocketAddress address)
            throws IOException {
        return endpoint.isUnix()
                ? new UnixSocket(address)
                : new TcpTransport(config, endpoint, address);
    }
}
