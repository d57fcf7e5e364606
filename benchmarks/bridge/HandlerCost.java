import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import kafkaclienttelemetry.bridge.BridgeExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Measures what the bridge costs the request handler that calls it, beside an exporter that does
 * nothing, in turns. Prints a JSON line for each round: CPU nanoseconds of a call, which other work
 * on the machine does not lengthen; nanoseconds of a call by the clock (median and 99th percentile);
 * and CPU seconds of the whole process.
 *
 * <p>Arguments: receiver, token file, file of the metrics, pushes a second, seconds, rounds.
 */
public final class HandlerCost {
  private static final int CLIENTS = 1000;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  public static void main(String[] arguments) throws Exception {
    BridgeExporter bridge = Requests.bridge(arguments[0], arguments[1]);
    ClientTelemetryExporter nothing = (context, payload) -> {};
    Requests requests = new Requests(Files.readAllBytes(Path.of(arguments[2])), CLIENTS);
    double rate = Double.parseDouble(arguments[3]);
    int count = (int) (rate * Double.parseDouble(arguments[4]));
    Thread.sleep(1000); // connects
    for (int round = -1; round < Integer.parseInt(arguments[5]); round++) {
      measure("nothing", round, nothing, requests, rate, count);
      measure("bridge", round, bridge, requests, rate, count);
    }
    bridge.close();
  }

  private static void measure(
      String name, int round, ClientTelemetryExporter exporter, Requests requests, double rate, int count)
      throws Exception {
    long[] taken = new long[count];
    long handlerCpu = 0;
    long cpu = cpuNs();
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
    cpu = cpuNs() - cpu;
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

  private static long cpuNs() {
    return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }
}
