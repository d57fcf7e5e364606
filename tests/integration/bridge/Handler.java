import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.management.ObjectName;
import kafkaclienttelemetry.bridge.BridgeExporter;
import kafkaclienttelemetry.bridge.BridgeReporter;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Calls the bridge with what no broker gives, then with buffers of all kinds, and after a line on
 * standard input closes it. Prints a JSON line for each of the three.
 *
 * <p>Arguments: receiver, token file.
 */
public final class Handler {
  private record Payload(ByteBuffer data) implements ClientTelemetryPayload {
    @Override
    public Uuid clientInstanceId() {
      return Uuid.ONE_UUID;
    }

    @Override
    public boolean isTerminating() {
      return false;
    }

    @Override
    public String contentType() {
      return "OTLP";
    }
  }

  private record Context(AuthorizableRequestContext authorizableRequestContext)
      implements ClientTelemetryContext {
    @Override
    public int pushIntervalMs() {
      return 1000;
    }
  }

  private final BridgeExporter bridge = new BridgeExporter();
  private final BridgeBean bean = new BridgeBean();
  private final List<String> thrown = new ArrayList<>();

  private Handler() throws Exception {}

  public static void main(String[] arguments) throws Exception {
    new Handler().run(arguments[0], arguments[1]);
  }

  private void run(String receiver, String tokenFile) throws Exception {
    boolean unconfigured = new BridgeReporter().clientReceiver() != null;
    bridge.configure(
        Map.of(
            "process.roles", "broker",
            "kafka.telemetry.bridge.receivers", receiver,
            "kafka.telemetry.bridge.token.file", tokenFile));
    bridge.clientTelemetryExporter();
    bean.waitUntilConnected();
    mistakes();
    waitFor("DroppedError", 6);
    print(
        "\"never_null\":" + unconfigured
            + ",\"dropped\":" + bean.value("DroppedError")
            + ",\"queued\":" + bean.value("QueuedBytes"));
    boolean untouched = buffers();
    bean.waitUntilQueued(0);
    print(
        "\"untouched\":" + untouched
            + ",\"acknowledged\":" + bean.value("Acknowledged")
            + ",\"unreadable\":" + bean.value("UnreadableDetails"));
    System.in.read(); // the receiver acknowledges nothing from here on
    give(context("principal", KafkaPrincipal.ANONYMOUS), metrics(9));
    waitFor("Forwarded", 5);
    bridge.close();
    boolean stillEnding = isRegistered();
    give(context("principal", KafkaPrincipal.ANONYMOUS), metrics(10));
    boolean neverNull = bridge.clientTelemetryExporter() != null;
    while (isRegistered() || threads() > 0) {
      Thread.sleep(1);
    }
    print("\"still_ending\":" + stillEnding + ",\"never_null\":" + neverNull);
  }

  private void mistakes() throws Exception {
    give(null, metrics(0));
    bridge.exportMetrics(new Context(context("principal", KafkaPrincipal.ANONYMOUS)), null);
    give(context("principal", KafkaPrincipal.ANONYMOUS), null);
    give(context("principal", new NoSuchMethodError("moved")), metrics(0));
    give(context("securityProtocol", null), metrics(0));
    give(
        context(
            "principal",
            new KafkaPrincipal("User", "secretive") {
              @Override
              public String toString() {
                throw new IllegalStateException("no text");
              }
            }),
        metrics(0));
  }

  /** Gives buffers of all kinds; whether none of them was moved. */
  private boolean buffers() throws Exception {
    ByteBuffer direct = ByteBuffer.allocateDirect(3).put(metrics(2)).flip();
    ByteBuffer longer = ByteBuffer.wrap(new byte[] {1, 1, 1, 0x0a, 1, 3, 1, 1}, 3, 3).slice();
    ByteBuffer readUp = metrics(4);
    readUp.position(readUp.limit());
    boolean untouched = true;
    for (ByteBuffer buffer : List.of(metrics(1).asReadOnlyBuffer(), direct, longer, readUp)) {
      int position = buffer.position();
      give(context("principal", KafkaPrincipal.ANONYMOUS), buffer);
      untouched &= buffer.position() == position;
    }
    return untouched;
  }

  private void waitFor(String counter, long value) throws Exception {
    while (bean.value(counter) < value) {
      Thread.sleep(1);
    }
  }

  private void give(AuthorizableRequestContext context, ByteBuffer metrics) {
    try {
      bridge.exportMetrics(new Context(context), new Payload(metrics));
    } catch (Throwable error) {
      thrown.add(error.toString());
    }
  }

  private static ByteBuffer metrics(int number) {
    return ByteBuffer.wrap(new byte[] {0x0a, 1, (byte) number});
  }

  /** A request's context with one value of its own, which is thrown if it is an Error. */
  private static AuthorizableRequestContext context(String name, Object value) throws Exception {
    Map<String, Object> standard =
        Map.of(
            "listenerName", "CLIENT",
            "securityProtocol", SecurityProtocol.PLAINTEXT,
            "principal", KafkaPrincipal.ANONYMOUS,
            "clientAddress", InetAddress.getLoopbackAddress(),
            "clientId", "client",
            "requestType", 72,
            "requestVersion", 0,
            "correlationId", 1);
    return (AuthorizableRequestContext)
        Proxy.newProxyInstance(
            Handler.class.getClassLoader(),
            new Class<?>[] {AuthorizableRequestContext.class},
            (proxy, method, arguments) -> {
              if (method.getName().equals(name) && value instanceof Error) {
                throw (Error) value;
              }
              return method.getName().equals(name) ? value : standard.get(method.getName());
            });
  }

  private static boolean isRegistered() throws Exception {
    ObjectName any = new ObjectName("kafka.telemetry.bridge:*");
    return !ManagementFactory.getPlatformMBeanServer().queryNames(any, null).isEmpty();
  }

  private static long threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("telemetry-bridge"))
        .count();
  }

  private void print(String fields) {
    String errors = thrown.isEmpty() ? "" : '"' + String.join("\",\"", thrown) + '"';
    System.out.println("{\"thrown\":[" + errors + "]," + fields + "}");
  }
}
