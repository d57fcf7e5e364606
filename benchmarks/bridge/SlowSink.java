import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ArrayBlockingQueue;
import kafkaclienttelemetry.bridge.BridgeExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * Gives pushes to an exporter at a rate, for some seconds: to the bridge, or to one that exports
 * one push at a time to an OTLP destination, as plugins for brokers do.
 *
 * <p>Arguments: {@code bridge} or {@code one-at-a-time}, receiver or URL, token file, file of the
 * metrics, pushes a second, seconds.
 */
public final class SlowSink {
  private static final int CLIENTS = 1000;

  /** A bounded queue, and a thread that waits for each answer; a full queue drops. */
  private static final class OneAtATime implements ClientTelemetryExporter {
    private final ArrayBlockingQueue<byte[]> queue = new ArrayBlockingQueue<>(1024);
    private final HttpClient client = HttpClient.newHttpClient();
    private final URI destination;

    OneAtATime(URI destination) {
      this.destination = destination;
      Thread thread = new Thread(this::export);
      thread.setDaemon(true);
      thread.start();
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
      byte[] copy = new byte[payload.data().remaining()];
      payload.data().duplicate().get(copy);
      queue.offer(copy);
    }

    private void export() {
      try {
        while (true) {
          HttpRequest request =
              HttpRequest.newBuilder(destination)
                  .header("Content-Type", "application/x-protobuf")
                  .POST(HttpRequest.BodyPublishers.ofByteArray(queue.take()))
                  .build();
          client.send(request, HttpResponse.BodyHandlers.discarding());
        }
      } catch (Exception error) {
        error.printStackTrace();
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    Requests requests = new Requests(Files.readAllBytes(Path.of(arguments[3])), CLIENTS);
    boolean isBridge = arguments[0].equals("bridge");
    BridgeExporter bridge = isBridge ? Requests.bridge(arguments[1], arguments[2]) : null;
    ClientTelemetryExporter exporter = isBridge ? bridge : new OneAtATime(URI.create(arguments[1]));
    double rate = Double.parseDouble(arguments[4]);
    int count = (int) (rate * Double.parseDouble(arguments[5]));
    Thread.sleep(1000); // connects
    long start = System.nanoTime();
    for (int index = 0; index < count; index++) {
      long due = start + (long) (index * 1e9 / rate);
      while (System.nanoTime() < due) {
        Thread.sleep(0, 200_000);
      }
      requests.give(exporter, index);
    }
    System.out.println("given");
    System.in.read(); // until the measurement is over
    if (isBridge) {
      bridge.close();
    }
  }
}
