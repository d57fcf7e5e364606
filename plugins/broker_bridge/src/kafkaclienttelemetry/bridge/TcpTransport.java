package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketAddress;
import java.security.GeneralSecurityException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** TCP, with TLS where the settings say so. */
final class TcpTransport implements Transport {
    private static final int CONNECT_TIMEOUT_MS = 5_000;

    private final BridgeConfig config;
    private final Endpoint endpoint;
    private final SocketAddress address;
    /** Closing it ends a write that is stuck, which closing TLS does not. */
    private final Socket tcp = new Socket();

    private Socket socket = tcp;

    TcpTransport(BridgeConfig config, Endpoint endpoint, SocketAddress address) {
        this.config = config;
        this.endpoint = endpoint;
        this.address = address;
    }

    @Override
    public void connect() throws IOException, GeneralSecurityException {
        tcp.connect(address, CONNECT_TIMEOUT_MS);
        tcp.setTcpNoDelay(true);
        tcp.setKeepAlive(true);
        if (config.tls) {
            socket = encrypt();
        }
    }

    private Socket encrypt() throws IOException, GeneralSecurityException {
        SSLSocket encrypted =
                (SSLSocket)
                        Trust.context(config.caFile)
                                .getSocketFactory()
                                .createSocket(tcp, endpoint.host, endpoint.port, true);
        SSLParameters parameters = encrypted.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
        encrypted.setSSLParameters(parameters);
        encrypted.startHandshake();
        return encrypted;
    }

    @Override
    public InputStream in() throws IOException {
        return socket.getInputStream();
    }

    @Override
    public OutputStream out() throws IOException {
        return socket.getOutputStream();
    }

    @Override
    public void close() throws IOException {
        tcp.close();
    }
}
