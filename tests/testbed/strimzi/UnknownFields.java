import com.fasterxml.jackson.dataformat.yaml.YAMLMapper;
import io.strimzi.api.kafka.model.kafka.Kafka;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Map;

/**
 * Reads a Kafka of Strimzi's from standard input with its operator's own classes, and prints each
 * field that they don't know. Fails where a value has another type.
 */
public final class UnknownFields {
  public static void main(String[] arguments) throws Exception {
    visit("", new YAMLMapper().readValue(System.in, Kafka.class));
  }

  private static void visit(String path, Object value) throws ReflectiveOperationException {
    if (value instanceof Collection<?> values) {
      int index = 0;
      for (Object entry : values) {
        visit(path + "[" + index++ + "]", entry);
      }
    } else if (value != null && value.getClass().getName().matches("io\\.(strimzi|fabric8)\\..*")) {
      if (!(value instanceof Enum)) {
        visitFields(path, value);
      }
    }
  }

  private static void visitFields(String path, Object value) throws ReflectiveOperationException {
    for (Method method : value.getClass().getMethods()) {
      String name = method.getName();
      if (method.getParameterCount() > 0 || !name.matches("get[A-Z].*") || name.equals("getClass")) {
        continue;
      }
      Object field = method.invoke(value);
      if (!name.equals("getAdditionalProperties")) {
        visit(path + "." + Character.toLowerCase(name.charAt(3)) + name.substring(4), field);
      } else if (field instanceof Map<?, ?> unknown) {
        unknown.keySet().forEach(key -> System.out.println(path + "." + key));
      }
    }
  }
}
