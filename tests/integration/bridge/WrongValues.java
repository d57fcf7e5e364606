import java.util.HashMap;
import java.util.Map;
import kafkaclienttelemetry.bridge.BridgeExporter;
import org.apache.kafka.common.config.ConfigException;

/**
 * Configures a bridge with each argument, KEY=VALUE below its prefix, beside good values. Prints a
 * JSON line with the error of each; empty if there was none.
 */
public final class WrongValues {
  public static void main(String[] arguments) {
    for (String argument : arguments) {
      Map<String, String> configs = new HashMap<>();
      configs.put("kafka.telemetry.bridge.token.file", "/token");
      String[] parts = argument.split("=", 2);
      configs.put("kafka.telemetry.bridge." + parts[0], parts[1]);
      String error = "";
      try {
        new BridgeExporter().configure(configs);
      } catch (ConfigException wrong) {
        error = wrong.getMessage();
      }
      System.out.println("{\"error\":\"" + error + "\"}");
    }
  }
}
