import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import kafkaclienttelemetry.bridge.BridgeExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Measures what the bridge costs the request handler that calls it, in turns with an exporter that
 * does nothing and one that copies the metrics and does nothing else. Prints a JSON line for each
 * round: CPU nanoseconds of a call, which other work on the machine does not lengthen; nanoseconds
 * of a call by the clock (median and 99th percentile); and CPU seconds of these calls and of all
 * other threads, the collector's among them. Two kinds of work are left out, because a broker that
 * runs for days has neither: the JVM's compilers, and the sleeps of the thread that paces the
 * calls, which cost more than the bridge and differ from round to round.
 *
 * <p>Arguments: receiver, token file, file of the metrics, pushes a second, seconds, rounds.
 */
public final class HandlerCost {
  private static final int CLIENTS = 1000;
  private static final int WARM_UP = 30_000;
  private static final int WARM_UP_QUEUED = 500;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private static volatile byte[] copied;

  private final BridgeBean bean = new BridgeBean();
  private final Requests requests;
  private final double rate;
  private final int count;

  private HandlerCost(Requests requests, double rate, double seconds) throws Exception {
    this.requests = requests;
    this.rate = rate;
    count = (int) (rate * seconds);
  }

  public static void main(String[] arguments) throws Exception {
    BridgeExporter bridge = Requests.bridge(arguments[0], arguments[1]);
    Map<String, ClientTelemetryExporter> exporters = new LinkedHashMap<>();
    exporters.put("nothing", (context, payload) -> {});
    exporters.put("copy", (context, payload) -> copied = copy(payload));
    exporters.put("bridge", bridge);
    Requests requests = new Requests(Files.readAllBytes(Path.of(arguments[2])), CLIENTS);
    double rate = Double.parseDouble(arguments[3]);
    HandlerCost cost = new HandlerCost(requests, rate, Double.parseDouble(arguments[4]));
    cost.run(exporters, Integer.parseInt(arguments[5]));
    bridge.close();
  }

  private static byte[] copy(ClientTelemetryPayload payload) {
    ByteBuffer data = payload.data().duplicate();
    byte[] metrics = new byte[data.remaining()];
    data.get(metrics);
    return metrics;
  }

  private void run(Map<String, ClientTelemetryExporter> exporters, int rounds) throws Exception {
    bean.waitUntilConnected();
    for (int index = 0; index < WARM_UP; index++) {
      bean.waitUntilQueued(WARM_UP_QUEUED);
      for (ClientTelemetryExporter exporter : exporters.values()) {
        requests.give(exporter, index);
      }
    }
    bean.waitUntilQueued(0);
    for (int round = -1; round < rounds; round++) {
      for (Map.Entry<String, ClientTelemetryExporter> exporter : exporters.entrySet()) {
        measure(exporter.getKey(), round, exporter.getValue());
      }
    }
    if (bean.value("Acknowledged") != bean.value("Received")) {
      throw new IllegalStateException(
          bean.lost() + " of " + bean.value("Received") + " pushes were dropped, and cost less");
    }
  }

  private void measure(String name, int round, ClientTelemetryExporter exporter) throws Exception {
    long[] taken = new long[count];
    long handlerCpu = 0;
    long cpu = othersCpuNs();
    long start = System.nanoTime();
    for (int index = 0; index < count; index++) {
      long due = start + (long) (index * 1e9 / rate);
      while (System.nanoTime() < due) {
        Thread.sleep(0, 200_000);
      }
      ClientTelemetryContext context = requests.context(index);
      ClientTelemetryPayload payload = requests.payload(index);
      long cpuBefore = THREADS.getCurrentThreadCpuTime();
      long before = System.nanoTime();
      exporter.exportMetrics(context, payload);
      taken[index] = System.nanoTime() - before;
      handlerCpu += THREADS.getCurrentThreadCpuTime() - cpuBefore;
    }
    bean.waitUntilQueued(0); // what is not delivered would cost the next round
    cpu = othersCpuNs() - cpu + handlerCpu;
    Arrays.sort(taken);
    if (round >= 0) { // the first round warms the code up
      System.out.printf(
          "{\"exporter\":\"%s\",\"handler_cpu_ns\":%d,\"median_ns\":%d,\"p99_ns\":%d,\"cpu_s\":%.4f}%n",
          name,
          handlerCpu / count,
          taken[count / 2],
          taken[count * 99 / 100],
          cpu / 1e9);
    }
  }

  /** CPU of all threads but the compilers' and the caller's. */
  private static long othersCpuNs() throws IOException {
    long sum = 0;
    Path own = Path.of("/proc/thread-self").toRealPath().getFileName();
    try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path thread : threads) {
        boolean compiles = Files.readString(thread.resolve("comm")).contains("CompilerThre");
        if (!compiles && !thread.getFileName().equals(own)) {
          sum += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
        }
      }
    }
    return sum;
  }
}
