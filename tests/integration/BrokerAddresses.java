import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * What Kafka's own message classes say about addresses in responses.
 *
 * <p>"schemas" prints the API key and version of each response that has a host and a port. "bodies" prints API key, version,
 * a body with advertised addresses, and the same body with those of a gateway. "read" reads API key, version and body from
 * each line of standard input, and prints the node endpoints and the sizes of unknown tagged fields.
 */
public final class BrokerAddresses {
    private static boolean gateway;

    private static String host(int node) {
        return gateway ? "gateway.example" : "b-" + node + ".internal";
    }

    private static int port(int node) {
        return gateway ? 29100 + node : 9092;
    }

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "schemas" -> schemas();
            case "bodies" -> bodies();
            default -> read();
        }
    }

    private static void schemas() {
        for (ApiMessageType type : ApiMessageType.values()) {
            for (int v = type.lowestSupportedVersion(); v <= type.highestSupportedVersion(false); v++) {
                if (names(type.responseSchemas()[v])) {
                    System.out.println(type.apiKey() + " " + v);
                }
            }
        }
    }

    private static boolean names(Type type) {
        if (type.isArray()) {
            return type.arrayElementType().isPresent() && names(type.arrayElementType().get());
        }
        if (!(type instanceof Schema schema)) {
            return false;
        }
        boolean host = false;
        boolean port = false;
        for (BoundField field : schema.fields()) {
            host |= field.def.name.equals("host");
            port |= field.def.name.equals("port");
            if (field.def.type instanceof TaggedFields tagged) {
                if (tagged.fields().values().stream().anyMatch(one -> names(one.type))) {
                    return true;
                }
            } else if (names(field.def.type)) {
                return true;
            }
        }
        return host && port;
    }

    private static void bodies() {
        for (ApiMessageType type : ApiMessageType.values()) {
            for (int v = type.lowestSupportedVersion(); v <= type.highestSupportedVersion(false); v++) {
                gateway = false;
                ApiMessage advertised = body(type, v);
                if (advertised == null) {
                    continue;
                }
                gateway = true;
                System.out.println(
                        type.apiKey() + " " + v + " " + hex(advertised, v) + " " + hex(body(type, v), v));
            }
        }
    }

    private static String hex(ApiMessage message, int version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, (short) version));
        message.write(new ByteBufferAccessor(bytes), cache, (short) version);
        return HexFormat.of().formatHex(bytes.array());
    }

    private static ApiMessage body(ApiMessageType type, int v) {
        return switch (type) {
            case METADATA -> metadata(v);
            case FIND_COORDINATOR -> coordinator(v);
            case DESCRIBE_CLUSTER -> cluster(v);
            case DESCRIBE_QUORUM -> quorum(v);
            case PRODUCE -> produce(v);
            case FETCH -> fetch(v);
            case SHARE_FETCH -> shareFetch();
            case SHARE_ACKNOWLEDGE -> shareAcknowledge();
            default -> null;
        };
    }

    private static ApiMessage metadata(int v) {
        var data = new MetadataResponseData().setControllerId(2);
        if (v >= 2) {
            data.setClusterId("cluster");
        }
        for (int node : new int[] {0, 2, 1_000_000}) {
            var broker = new MetadataResponseData.MetadataResponseBroker().setNodeId(node).setHost(host(node)).setPort(port(node));
            if (v >= 1 && node == 2) {
                broker.setRack("rack-b");
            }
            if (v >= 9 && node == 2) {
                broker.unknownTaggedFields().add(new RawTaggedField(7, new byte[200]));
            }
            data.brokers().add(broker);
        }
        var topic = new MetadataResponseData.MetadataResponseTopic().setName("orders");
        topic.partitions().add(new MetadataResponseData.MetadataResponsePartition()
                .setLeaderId(2).setReplicaNodes(List.of(0, 2)).setIsrNodes(List.of(2)));
        data.topics().add(topic);
        return data;
    }

    private static ApiMessage coordinator(int v) {
        var data = new FindCoordinatorResponseData();
        if (v < 4) {
            data.setNodeId(3).setHost(host(3)).setPort(port(3));
            return v >= 1 ? data.setErrorMessage("none").setThrottleTimeMs(7) : data;
        }
        data.coordinators().add(new FindCoordinatorResponseData.Coordinator()
                .setKey("group").setNodeId(3).setHost(host(3)).setPort(port(3)));
        data.coordinators().add(new FindCoordinatorResponseData.Coordinator()
                .setKey("other").setNodeId(-1).setHost("").setPort(-1).setErrorCode((short) 15).setErrorMessage("not there"));
        return data;
    }

    private static ApiMessage cluster(int v) {
        var data = new DescribeClusterResponseData().setClusterId("cluster").setErrorMessage("x").setControllerId(1);
        if (v >= 1) {
            data.setEndpointType((byte) 1);
        }
        for (int node = 0; node < 3; node++) {
            var broker = new DescribeClusterResponseData.DescribeClusterBroker().setBrokerId(node).setHost(host(node)).setPort(port(node));
            data.brokers().add(v >= 2 ? broker.setRack("r").setIsFenced(node == 1) : broker);
        }
        return data;
    }

    private static ApiMessage quorum(int v) {
        var data = new DescribeQuorumResponseData();
        var partition = new DescribeQuorumResponseData.PartitionData().setLeaderId(1).setHighWatermark(77);
        partition.currentVoters().add(new DescribeQuorumResponseData.ReplicaState().setReplicaId(1).setLogEndOffset(5));
        partition.observers().add(new DescribeQuorumResponseData.ReplicaState().setReplicaId(2).setLogEndOffset(4));
        data.topics().add(new DescribeQuorumResponseData.TopicData()
                .setTopicName("__cluster_metadata").setPartitions(new ArrayList<>(List.of(partition))));
        if (v >= 2) {
            data.setErrorMessage("none");
            var node = new DescribeQuorumResponseData.Node().setNodeId(1);
            if (!gateway) {
                node.listeners().add(new DescribeQuorumResponseData.Listener().setName("CONTROLLER").setHost(host(1)).setPort(65_000));
            }
            data.nodes().add(node);
        }
        return data;
    }

    private static ApiMessage produce(int v) {
        var data = new ProduceResponseData().setThrottleTimeMs(9);
        var partition = new ProduceResponseData.PartitionProduceResponse().setErrorCode((short) 6);
        var topic = new ProduceResponseData.TopicProduceResponse();
        topic.partitionResponses().add(partition);
        if (v >= 13) {
            topic.setTopicId(new Uuid(1, 2));
        } else {
            topic.setName("orders");
        }
        if (v >= 8) {
            partition.setErrorMessage("moved");
            partition.recordErrors().add(new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndexErrorMessage("bad"));
        }
        if (v >= 10) {
            partition.setCurrentLeader(new ProduceResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(5));
            for (int node : new int[] {4, 5}) {
                data.nodeEndpoints().add(new ProduceResponseData.NodeEndpoint()
                        .setNodeId(node).setHost(host(node)).setPort(port(node)).setRack(node == 5 ? "r" : null));
            }
        }
        data.responses().add(topic);
        return data;
    }

    private static ApiMessage fetch(int v) {
        var data = new FetchResponseData().setThrottleTimeMs(9);
        var topic = new FetchResponseData.FetchableTopicResponse();
        if (v >= 13) {
            topic.setTopicId(new Uuid(1, 2));
        } else {
            topic.setTopic("orders");
        }
        for (int index = 0; index < 2; index++) {
            var partition = new FetchResponseData.PartitionData().setPartitionIndex(index).setRecords(MemoryRecords.readableRecords(ByteBuffer.allocate(300 * index)));
            if (index == 1) {
                partition.setAbortedTransactions(List.of(new FetchResponseData.AbortedTransaction().setFirstOffset(8)));
            }
            if (v >= 12) {
                partition.setCurrentLeader(new FetchResponseData.LeaderIdAndEpoch().setLeaderId(4).setLeaderEpoch(5));
            }
            topic.partitions().add(partition);
        }
        if (v >= 16) {
            for (int node : new int[] {4, 5}) {
                data.nodeEndpoints().add(new FetchResponseData.NodeEndpoint()
                        .setNodeId(node).setHost(host(node)).setPort(port(node)).setRack(node == 5 ? "r" : null));
            }
        }
        data.responses().add(topic);
        return data;
    }

    private static ApiMessage shareFetch() {
        var data = new ShareFetchResponseData().setErrorMessage("x");
        var partition = new ShareFetchResponseData.PartitionData()
                .setErrorMessage("y").setAcknowledgeErrorMessage("z").setRecords(MemoryRecords.readableRecords(ByteBuffer.allocate(300)));
        partition.acquiredRecords().add(new ShareFetchResponseData.AcquiredRecords().setLastOffset(9));
        var topic = new ShareFetchResponseData.ShareFetchableTopicResponse().setTopicId(new Uuid(1, 2));
        topic.partitions().add(partition);
        data.responses().add(topic);
        data.nodeEndpoints().add(new ShareFetchResponseData.NodeEndpoint().setNodeId(4).setHost(host(4)).setPort(port(4)));
        return data;
    }

    private static ApiMessage shareAcknowledge() {
        var data = new ShareAcknowledgeResponseData().setErrorMessage("x");
        var topic = new ShareAcknowledgeResponseData.ShareAcknowledgeTopicResponse().setTopicId(new Uuid(1, 2));
        topic.partitions().add(new ShareAcknowledgeResponseData.PartitionData().setErrorMessage("y"));
        data.responses().add(topic);
        data.nodeEndpoints().add(new ShareAcknowledgeResponseData.NodeEndpoint().setNodeId(4).setHost(host(4)).setPort(port(4)));
        return data;
    }

    private static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            ApiMessage message = ApiMessageType.fromApiKey(Short.parseShort(words[0])).newResponse();
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            message.read(new ByteBufferAccessor(bytes), Short.parseShort(words[1]));
            StringBuilder unknown = new StringBuilder();
            for (RawTaggedField field : message.unknownTaggedFields()) {
                unknown.append(' ').append(field.size());
            }
            Object endpoints = message.getClass().getMethod("nodeEndpoints").invoke(message);
            StringBuilder addresses = new StringBuilder();
            for (Object endpoint : (Iterable<?>) endpoints) {
                Class<?> type = endpoint.getClass();
                addresses.append(' ').append(type.getMethod("nodeId").invoke(endpoint));
                addresses.append('=').append(type.getMethod("host").invoke(endpoint));
                addresses.append(':').append(type.getMethod("port").invoke(endpoint));
            }
            System.out.println(bytes.remaining() + " left;" + addresses + ";" + unknown);
        }
    }
}
