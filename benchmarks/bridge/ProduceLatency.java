import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Times records of a producer that sends each alone, at a rate, and prints a JSON line: microseconds
 * from when a record was due to its acknowledgement.
 *
 * <p>Arguments: bootstrap servers, topic, records a second, seconds.
 */
public final class ProduceLatency {
  private static final int WARM_UP = 500;
  private static final int RECORD_BYTES = 1000;

  public static void main(String[] arguments) throws Exception {
    double rate = Double.parseDouble(arguments[2]);
    int count = (int) (rate * Double.parseDouble(arguments[3]));
    Map<String, Object> config =
        Map.of(
            "bootstrap.servers", arguments[0],
            "linger.ms", 0,
            "enable.metrics.push", false,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
      ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(arguments[1], new byte[RECORD_BYTES]);
      for (int index = 0; index < WARM_UP; index++) {
        producer.send(record).get();
      }
      long[] taken = new long[count];
      long start = System.nanoTime();
      for (int index = 0; index < count; index++) {
        long due = start + (long) (index * 1e9 / rate);
        while (System.nanoTime() < due) {
          Thread.sleep(0, 200_000);
        }
        producer.send(record).get();
        taken[index] = System.nanoTime() - due;
      }
      Arrays.sort(taken);
      System.out.printf(
          "{\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}%n",
          taken[count / 2] / 1e3, taken[count * 99 / 100] / 1e3, taken[count - 1] / 1e3);
    }
  }
}
