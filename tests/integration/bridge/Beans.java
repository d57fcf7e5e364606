import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints the numbers of a JVM's MBeans: a line with name, attribute and value for each, with tabs
 * between. Arguments: the port of its JMX, a pattern of names, and how many MBeans to read at most.
 * The last line has the number of those that match.
 */
public final class Beans {
  public static void main(String[] arguments) throws Exception {
    String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
    try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
      MBeanServerConnection server = connector.getMBeanServerConnection();
      var names = server.queryNames(new ObjectName(arguments[1]), null);
      for (ObjectName name : names.stream().limit(Long.parseLong(arguments[2])).toList()) {
        for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
          Object value = server.getAttribute(name, attribute.getName());
          if (value instanceof Number) {
            System.out.println(name + "\t" + attribute.getName() + "\t" + value);
          }
        }
      }
      System.out.println(names.size());
    }
  }
}
