package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;

/**
 * A Unix socket, which Java has since 16. This is compiled for Java 11, so it asks by name.
 *
 * <p>The streams are not those of {@link java.nio.channels.Channels}, because in Java before 19 a
 * read of these holds up a write.
 */
final class UnixSocket implements Transport {
    private final SocketAddress address;
    private final SocketChannel channel;

    UnixSocket(SocketAddress address) throws IOException {
        this.address = address;
        try {
            channel =
                    (SocketChannel)
                            SocketChannel.class
                                    .getMethod("open", ProtocolFamily.class)
                                    .invoke(null, StandardProtocolFamily.valueOf("UNIX"));
        } catch (ReflectiveOperationException | IllegalArgumentException error) {
            throw new IOException("can't open a Unix socket: " + error, error);
        }
    }

    /** The address of a socket's file; null before Java 16. */
    static SocketAddress address(String path) {
        try {
            return (SocketAddress)
                    Class.forName("java.net.UnixDomainSocketAddress")
                            .getMethod("of", String.class)
                            .invoke(null, path);
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    @Override
    public void connect() throws IOException {
        channel.connect(address);
    }

    @Override
    public InputStream in() {
        return new InputStream() {
            @Override
            public int read() throws IOException {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] bytes, int offset, int length) throws IOException {
                return channel.read(ByteBuffer.wrap(bytes, offset, length));
            }
        };
    }

    @Override
    public OutputStream out() {
        return new OutputStream() {
            @Override
            public void write(int value) throws IOException {
                write(new byte[] {(byte) value}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int offset, int length) throws IOException {
                ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
                while (buffer.hasRemaining()) {
                    channel.write(buffer);
                }
            }
        };
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
