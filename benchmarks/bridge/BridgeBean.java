import java.lang.management.ManagementFactory;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** The MBean of the bridge in this process. */
final class BridgeBean {
  private final MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
  private final ObjectName name;

  BridgeBean() throws Exception {
    name = new ObjectName("kafka.telemetry.bridge:type=Bridge");
  }

  /** The value of an attribute, 0 before the bridge has its MBean. */
  long value(String attribute) throws Exception {
    return beans.isRegistered(name) ? ((Number) beans.getAttribute(name, attribute)).longValue() : 0;
  }

  /** Waits until the bridge has its receiver. */
  void waitUntilConnected() throws Exception {
    while (value("Connected") == 0) {
      Thread.sleep(20);
    }
  }

  /** Waits until at most so many pushes wait or are not acknowledged. */
  void waitUntilQueued(long limit) throws Exception {
    while (value("QueuedItems") > limit) {
      Thread.sleep(1);
    }
  }

  /** Pushes that were dropped or refused. */
  long lost() throws Exception {
    return value("DroppedQueueFull") + value("DroppedError") + value("Refused");
  }
}
