package kafkaclienttelemetry.bridge;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsContext;
import org.apache.kafka.common.metrics.MetricsReporter;

/**
 * What both entries share: the life cycle of a metrics reporter.
 *
 * <p>The broker calls some of these methods on its metadata loader, so none of them waits.
 */
abstract class BridgePlugin implements MetricsReporter {
    private final Bridge bridge = new Bridge();

    /** The bridge of this plugin. */
    final Bridge bridge() {
        return bridge;
    }

    @Override
    public final void configure(Map<String, ?> configs) {
        bridge.configure(configs);
    }

    @Override
    public final void contextChange(MetricsContext context) {
        bridge.identify(context.contextLabels());
    }

    @Override
    public final Set<String> reconfigurableConfigs() {
        return BridgeConfig.KEYS;
    }

    @Override
    public final void validateReconfiguration(Map<String, ?> configs) {
        BridgeConfig.parse(configs);
    }

    @Override
    public final void reconfigure(Map<String, ?> configs) {
        bridge.reconfigure(configs);
    }

    @Override
    public final void close() {
        bridge.close();
    }

    // The broker's own metrics are not the bridge's business.

    @Override
    public final void init(List<KafkaMetric> metrics) {}

    @Override
    public final void metricChange(KafkaMetric metric) {}

    @Override
    public final void metricRemoval(KafkaMetric metric) {}
}
