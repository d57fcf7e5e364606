import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import kafkaclienttelemetry.bridge.BridgeExporter;

/**
 * Gives the bridge a number of pushes as fast as its receiver takes them, and prints ten JSON lines
 * on the way: pushes acknowledged and dropped, heap in use after a collection, and threads.
 *
 * <p>Arguments: receiver, token file, file of the metrics, pushes, clients.
 */
public final class HeapOverPushes {
  private static final int LINES = 10;
  private static final int LOOK_EVERY = 100;
  private static final long MOST_QUEUED = 5_000;

  private final BridgeBean bean = new BridgeBean();

  private HeapOverPushes() throws Exception {}

  public static void main(String[] arguments) throws Exception {
    BridgeExporter bridge = Requests.bridge(arguments[0], arguments[1]);
    byte[] metrics = Files.readAllBytes(Path.of(arguments[2]));
    Requests requests = new Requests(metrics, Integer.parseInt(arguments[4]));
    new HeapOverPushes().run(bridge, requests, Integer.parseInt(arguments[3]));
    bridge.close();
  }

  private void run(BridgeExporter bridge, Requests requests, int pushes) throws Exception {
    bean.waitUntilConnected();
    for (int line = 0; line < LINES; line++) {
      for (int index = 0; index < pushes / LINES; index++) {
        if (index % LOOK_EVERY == 0) {
          bean.waitUntilQueued(MOST_QUEUED);
        }
        requests.give(bridge, index);
      }
      bean.waitUntilQueued(0);
      System.gc();
      System.gc();
      System.out.printf(
          "{\"acknowledged\":%d,\"dropped\":%d,\"heap_bytes\":%d,\"threads\":%d}%n",
          bean.value("Acknowledged"),
          bean.lost(),
          ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed(),
          ManagementFactory.getThreadMXBean().getThreadCount());
    }
  }
}
