import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import kafkaclienttelemetry.bridge.BridgeExporter;

/**
 * Gives pushes to a bridge whose receiver acknowledges nothing, each while the sender sleeps, and
 * prints how often the sender slept meanwhile.
 *
 * <p>Arguments: receiver, token file, file of the metrics, window of the receiver, pushes beyond it.
 */
public final class FullWindow {
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  public static void main(String[] arguments) throws Exception {
    BridgeExporter bridge = Requests.bridge(arguments[0], arguments[1]);
    Requests requests = new Requests(Files.readAllBytes(Path.of(arguments[2])), 10);
    BridgeBean bean = new BridgeBean();
    bean.waitUntilConnected();
    int window = Integer.parseInt(arguments[3]);
    for (int number = 0; number < window; number++) {
      requests.give(bridge, number);
    }
    while (bean.value("Forwarded") < window) {
      Thread.sleep(1);
    }
    Thread sender = sender();
    waitUntilAsleep(sender);
    long before = sleeps(sender);
    for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
      requests.give(bridge, number);
      waitUntilAsleep(sender);
    }
    System.out.printf("{\"sleeps\":%d}%n", sleeps(sender) - before);
  }

  private static Thread sender() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("telemetry-bridge-127."))
        .findAny()
        .orElseThrow();
  }

  private static void waitUntilAsleep(Thread thread) throws InterruptedException {
    do {
      Thread.sleep(1); // a thread that was just woken looks asleep until it runs
    } while (thread.getState() != Thread.State.WAITING && thread.getState() != Thread.State.TIMED_WAITING);
  }

  private static long sleeps(Thread thread) {
    return THREADS.getThreadInfo(thread.getId()).getWaitedCount();
  }
}
