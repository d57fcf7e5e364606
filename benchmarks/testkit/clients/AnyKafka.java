import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A Java producer, consumer or admin client of any Kafka since 3.7, which runs until SIGTERM and then closes.
 *
 * <p>Its arguments are those of the testbed's clients, whose Java program needs Kafka 4.1 to consume.
 */
public final class AnyKafka {
  private static final Duration CLOSE_WITHIN = Duration.ofSeconds(10);
  private static volatile boolean running = true;

  private AnyKafka() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, String> given = new HashMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      given.put(arguments[i], arguments[i + 1]);
    }
    Thread main = Thread.currentThread();
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  running = false;
                  try {
                    main.join(CLOSE_WITHIN.multipliedBy(2).toMillis());
                  } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                  }
                }));
    Properties properties = new Properties();
    try (var reader = Files.newBufferedReader(Path.of(given.get("--properties")))) {
      properties.load(reader);
    }
    properties.put("bootstrap.servers", given.get("--bootstrap"));
    properties.put("client.id", given.get("--client-id"));
    switch (given.get("--mode")) {
      case "producer" -> produce(properties, given.get("--topic"), Double.parseDouble(given.get("--rate")));
      case "consumer" -> consume(properties, given.get("--topic"), given.get("--group"));
      default -> administer(properties);
    }
  }

  private static void produce(Properties properties, String topic, double rate) throws Exception {
    ByteArraySerializer serializer = new ByteArraySerializer();
    KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, serializer, serializer);
    while (running) {
      producer.send(new ProducerRecord<>(topic, new byte[100]));
      Thread.sleep((long) (1000 / rate));
    }
    producer.close(CLOSE_WITHIN);
  }

  @SuppressWarnings("deprecation") // the other way to close came with Kafka 4.1
  private static void consume(Properties properties, String topic, String group) {
    properties.put("group.id", group);
    ByteArrayDeserializer deserializer = new ByteArrayDeserializer();
    KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, deserializer, deserializer);
    consumer.subscribe(List.of(topic));
    while (running) {
      consumer.poll(Duration.ofMillis(100));
    }
    consumer.close(CLOSE_WITHIN);
  }

  private static void administer(Properties properties) throws Exception {
    try (Admin admin = Admin.create(properties)) {
      while (running) {
        admin.listTopics().names().get();
        Thread.sleep(200);
      }
    }
  }
}
