package kafkatelemetry.testbed;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A Java producer or consumer that runs until SIGTERM and then closes its client, which lets it push a last time.
 *
 * <p>Its arguments and its JSON lines on standard output are those of every client of the testbed.
 */
public final class Client {
  private static final Duration STATUS_EVERY = Duration.ofSeconds(1);
  private static final Duration CLOSE_WITHIN = Duration.ofSeconds(10);
  private static final int VALUE_BYTES = 100;

  private String mode;
  private String topic;
  private double rate;
  private long count;
  private final Properties properties = new Properties();
  private final AtomicLong records = new AtomicLong();
  private final AtomicLong errors = new AtomicLong();
  private volatile boolean running = true;
  private Uuid instanceId;
  private long nextStatus;

  private Client(String[] arguments) {
    String group = "";
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      String value = arguments[i + 1];
      switch (arguments[i]) {
        case "--mode" -> mode = value;
        case "--bootstrap" -> properties.put("bootstrap.servers", value);
        case "--topic" -> topic = value;
        case "--client-id" -> properties.put("client.id", value);
        case "--group" -> group = value;
        case "--rate" -> rate = Double.parseDouble(value);
        case "--count" -> count = Long.parseLong(value); // below 0: without end
        case "--properties" -> read(Path.of(value));
        default -> throw new IllegalArgumentException("unknown option " + arguments[i]);
      }
    }
    if (mode.equals("consumer")) {
      properties.put("group.id", group);
      properties.putIfAbsent("auto.offset.reset", "earliest");
    }
  }

  private void read(Path file) {
    try {
      for (String line : Files.readAllLines(file)) {
        String[] pair = line.split("=", 2);
        properties.put(pair[0], pair[1]);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Runs one client; the arguments are option and value in turn, checked by whoever starts it. */
  public static void main(String[] arguments) {
    new Client(arguments).runUntilTerminated();
  }

  private void runUntilTerminated() {
    int[] status = {1};
    stopOnTermination(Thread.currentThread(), status);
    print("started", "\"mode\":" + quoted(mode) + ",\"version\":" + quoted(version()));
    try {
      if (mode.equals("producer")) {
        produce();
      } else {
        consume();
      }
      print("stopped", counts());
      status[0] = 0;
    } catch (RuntimeException e) {
      error(e);
      throw e;
    }
  }

  /** A JVM that SIGTERM ended reports 143, however well it closed: so halt with the status of our own. */
  private void stopOnTermination(Thread main, int[] status) {
    Thread hook =
        new Thread(
            () -> {
              running = false;
              try {
                main.join(CLOSE_WITHIN.multipliedBy(2).toMillis());
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
              Runtime.getRuntime().halt(status[0]);
            });
    Runtime.getRuntime().addShutdownHook(hook);
  }

  private void produce() {
    ByteArraySerializer serializer = new ByteArraySerializer();
    Producer<byte[], byte[]> producer = new KafkaProducer<>(properties, serializer, serializer);
    try {
      byte[] value = new byte[VALUE_BYTES];
      long start = System.nanoTime();
      for (long sent = 0; running && sent != count; sent++) {
        long due = start + (long) (sent * 1e9 / rate);
        while (running && System.nanoTime() < due) {
          sleep(Duration.ofNanos(Math.min(due - System.nanoTime(), 100_000_000L)));
          report(() -> producer.clientInstanceId(Duration.ZERO));
        }
        report(() -> producer.clientInstanceId(Duration.ZERO));
        producer.send(
            new ProducerRecord<>(topic, value),
            (metadata, exception) -> {
              if (exception == null) {
                records.incrementAndGet();
              } else {
                error(exception);
              }
            });
      }
      while (running) {
        sleep(Duration.ofMillis(100));
        report(() -> producer.clientInstanceId(Duration.ZERO));
      }
    } finally {
      producer.close(CLOSE_WITHIN);
    }
  }

  private void consume() {
    ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, deserializer, deserializer);
    try {
      consumer.subscribe(List.of(topic));
      while (running) {
        records.addAndGet(consumer.poll(Duration.ofMillis(100)).count());
        report(() -> consumer.clientInstanceId(Duration.ZERO));
      }
    } finally {
      consumer.close(CloseOptions.timeout(CLOSE_WITHIN));
    }
  }

  private static void sleep(Duration duration) {
    try {
      Thread.sleep(Math.max(0, duration.toMillis()), Math.max(0, duration.toNanosPart() % 1_000_000));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void report(Supplier<Uuid> currentInstanceId) {
    long now = System.nanoTime();
    if (nextStatus != 0 && now < nextStatus) {
      return;
    }
    nextStatus = now + STATUS_EVERY.toNanos();
    print("counts", counts());
    if (instanceId == null) {
      try {
        instanceId = currentInstanceId.get();
      } catch (IllegalStateException | TimeoutException e) {
        return; // telemetry is switched off, or the broker has given no id yet
      }
      if (instanceId != null) {
        print("client_instance_id", "\"id\":" + quoted(instanceId.toString()));
      }
    }
  }

  private String counts() {
    return "\"records\":" + records.get() + ",\"errors\":" + errors.get();
  }

  private void error(Exception e) {
    errors.incrementAndGet();
    print("error", "\"message\":" + quoted(e.toString()));
  }

  private static String version() {
    Properties about = new Properties();
    try (InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
      about.load(in);
    } catch (IOException e) {
      throw new IllegalStateException("kafka-clients does not say its version", e);
    }
    return about.getProperty("version");
  }

  private static synchronized void print(String event, String fields) {
    System.out.println("{\"event\":" + quoted(event) + "," + fields + "}");
    System.out.flush();
  }

  private static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
