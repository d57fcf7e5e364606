import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Clients of a cluster that only Java has, or has whole: admin, transactions and share groups.
 *
 * <p>The arguments are a bootstrap address, an act and what it needs; the result is printed.
 */
public final class ClusterClients {
  private static final long PATIENCE_MS = 60_000;

  private final String bootstrap;

  private ClusterClients(String bootstrap) {
    this.bootstrap = bootstrap;
  }

  /** Runs one act. */
  public static void main(String[] arguments) throws Exception {
    ClusterClients clients = new ClusterClients(arguments[0]);
    switch (arguments[1]) {
      case "create" -> clients.create(arguments[2], Integer.parseInt(arguments[3]));
      case "describe" -> clients.describe(arguments[2]);
      case "lead" -> clients.lead(arguments[2], Integer.parseInt(arguments[3]));
      case "transactions" -> clients.transactions(arguments[2]);
      case "share" -> clients.share(arguments[2], Integer.parseInt(arguments[3]));
      default -> throw new IllegalArgumentException(arguments[1]);
    }
  }

  private Properties properties() {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", bootstrap);
    properties.put("key.serializer", StringSerializer.class.getName());
    properties.put("value.serializer", StringSerializer.class.getName());
    properties.put("key.deserializer", StringDeserializer.class.getName());
    properties.put("value.deserializer", StringDeserializer.class.getName());
    return properties;
  }

  private void create(String topic, int partitions) throws Exception {
    try (Admin admin = Admin.create(properties())) {
      admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
    }
  }

  /** Prints each address of a broker that any response has named. */
  private void describe(String topic) throws Exception {
    try (Admin admin = Admin.create(properties())) {
      Set<String> named = new TreeSet<>();
      var cluster = admin.describeCluster();
      cluster.nodes().get().forEach(node -> named.add(text(node)));
      named.add(text(cluster.controller().get()));
      TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
      Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
      for (var partition : description.partitions()) {
        named.add(text(partition.leader()));
        partition.replicas().forEach(node -> named.add(text(node)));
        ends.put(new TopicPartition(topic, partition.partition()), OffsetSpec.latest());
      }
      admin.listOffsets(ends).all().get(); // asks every leader
      admin.describeLogDirs(nodeIds(cluster.nodes().get())).allDescriptions().get(); // asks every broker
      named.forEach(System.out::println);
    }
  }

  private static List<Integer> nodeIds(Collection<Node> nodes) {
    return nodes.stream().map(Node::id).toList();
  }

  private static String text(Node node) {
    return node.id() + " " + node.host() + ":" + node.port();
  }

  /** Makes a broker the leader of all partitions. */
  private void lead(String topic, int nodeId) throws Exception {
    try (Admin admin = Admin.create(properties())) {
      TopicDescription before = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
      Map<TopicPartition, Optional<NewPartitionReassignment>> changes = new HashMap<>();
      for (var partition : before.partitions()) {
        List<Integer> replicas = new ArrayList<>(nodeIds(partition.replicas()));
        if (!replicas.remove((Integer) nodeId)) {
          replicas.remove(replicas.size() - 1);
        }
        replicas.add(0, nodeId);
        changes.put(
            new TopicPartition(topic, partition.partition()), Optional.of(new NewPartitionReassignment(replicas)));
      }
      admin.alterPartitionReassignments(changes).all().get();
      long deadline = System.currentTimeMillis() + PATIENCE_MS;
      while (!admin.listPartitionReassignments(changes.keySet()).reassignments().get().isEmpty()) {
        pauseUntil(deadline);
      }
      var elected = admin.electLeaders(ElectionType.PREFERRED, changes.keySet()).partitions().get();
      for (Optional<Throwable> error : elected.values()) {
        if (error.isPresent() && !(error.get() instanceof ElectionNotNeededException)) {
          throw new IllegalStateException(error.get());
        }
      }
      while (!isLeader(admin, topic, nodeId)) {
        pauseUntil(deadline);
      }
    }
  }

  private static boolean isLeader(Admin admin, String topic, int nodeId) throws Exception {
    TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    return description.partitions().stream()
        .allMatch(partition -> partition.leader() != null && partition.leader().id() == nodeId);
  }

  private static void pauseUntil(long deadline) throws InterruptedException {
    if (System.currentTimeMillis() > deadline) {
      throw new IllegalStateException("waited in vain");
    }
    Thread.sleep(100);
  }

  /** Commits a hundred records, aborts ten, and prints what a consumer reads. */
  private void transactions(String topic) throws Exception {
    Properties properties = properties();
    properties.put("transactional.id", topic);
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
      producer.initTransactions();
      for (int transaction = 0; transaction < 11; transaction++) {
        producer.beginTransaction();
        for (int record = 0; record < 10; record++) {
          producer.send(new ProducerRecord<>(topic, record % 3, null, transaction == 5 ? "aborted" : "committed"));
        }
        producer.flush();
        if (transaction == 5) {
          producer.abortTransaction();
        } else {
          producer.commitTransaction();
        }
      }
    }
    properties = properties();
    properties.put("group.id", topic);
    properties.put("auto.offset.reset", "earliest");
    properties.put("isolation.level", "read_committed");
    try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
      consumer.subscribe(List.of(topic));
      List<String> values = new ArrayList<>();
      long deadline = System.currentTimeMillis() + PATIENCE_MS;
      while (values.size() < 100 && System.currentTimeMillis() < deadline) {
        consumer.poll(Duration.ofMillis(200)).forEach(record -> values.add(record.value()));
      }
      consumer.commitSync();
      System.out.println(values.stream().collect(Collectors.groupingBy(v -> v, Collectors.counting())));
    }
  }

  /** Reads so many records of a topic in a share group, and acknowledges each. */
  private void share(String topic, int count) throws Exception {
    String group = "share-" + topic;
    try (Admin admin = Admin.create(properties())) {
      ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
      AlterConfigOp earliest =
          new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
      admin.incrementalAlterConfigs(Map.of(resource, Collections.singletonList(earliest))).all().get();
    }
    Properties properties = properties();
    properties.put("group.id", group);
    properties.put("share.acknowledgement.mode", "explicit");
    int acknowledged = 0;
    try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
      consumer.subscribe(List.of(topic));
      long deadline = System.currentTimeMillis() + PATIENCE_MS;
      while (acknowledged < count && System.currentTimeMillis() < deadline) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
          consumer.acknowledge(record, AcknowledgeType.ACCEPT);
          acknowledged++;
        }
        for (var result : consumer.commitSync().values()) {
          result.ifPresent(e -> { throw e; });
        }
      }
    }
    System.out.println(acknowledged >= count ? "acknowledged" : "only " + acknowledged);
  }
}
