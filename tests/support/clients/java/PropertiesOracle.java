import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.cluster.EndPoint;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.utils.Utils;

/**
 * What Kafka makes of files of properties: one line of JSON for each file of a directory.
 *
 * Loads a file as kafka.Kafka does, and makes the broker's configuration of it. With "--keys"
 * instead of a directory: a line for each key that brokers have.
 */
public final class PropertiesOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        if (words[0].equals("--keys")) {
            for (ConfigDef.ConfigKey key : KafkaConfig.configDef().configKeys().values()) {
                out.println(JSON.writeValueAsString(described(key)));
            }
            out.flush();
            return;
        }
        try (Stream<Path> files = Files.list(Path.of(words[0]))) {
            for (Path file : files.sorted().collect(Collectors.toList())) {
                out.println(JSON.writeValueAsString(judged(file)));
            }
        }
        out.flush();
    }

    private static Map<String, Object> described(ConfigDef.ConfigKey key) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("name", key.name);
        found.put("type", key.type.toString());
        Object value = key.hasDefault() ? key.defaultValue : null;
        found.put("default", value == null ? null : ConfigDef.convertToString(value, key.type));
        found.put("validator", String.valueOf(key.validator));
        found.put("internal", key.internalConfig);
        found.put("mode", DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes().get(key.name));
        found.put("ofListener", SslConfigs.RECONFIGURABLE_CONFIGS.contains(key.name));
        return found;
    }

    private static Map<String, Object> judged(Path file) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("file", file.getFileName().toString());
        Properties properties;
        try {
            properties = Utils.loadProps(file.toString());
        } catch (Exception error) {
            found.put("unreadable", String.valueOf(error.getMessage()));
            return found;
        }
        Map<String, String> loaded = new TreeMap<>();
        for (String name : properties.stringPropertyNames()) {
            loaded.put(name, properties.getProperty(name));
        }
        found.put("properties", loaded);
        try {
            found.put("values", values(KafkaConfig.fromProps(properties, false)));
        } catch (Exception | NoClassDefFoundError | ExceptionInInitializerError error) {
            found.put("refused", String.valueOf(error.getMessage()));
        }
        return found;
    }

    private static Map<String, Object> values(KafkaConfig config) {
        Map<String, Object> values = new TreeMap<>();
        for (Map.Entry<String, ?> each : config.values().entrySet()) {
            Object value = each.getValue();
            values.put(each.getKey(), value instanceof List || value == null ? value : value.toString());
        }
        values.put("log.dirs", scala.jdk.javaapi.CollectionConverters.asJava(config.logDirs()));
        values.put("log.retention.ms", String.valueOf(config.logRetentionTimeMillis()));
        values.put("log.roll.ms", String.valueOf(config.logRollTimeMillis()));
        values.put("log.roll.jitter.ms", String.valueOf(config.logRollTimeJitterMillis()));
        values.put("zookeeper.connection.timeout.ms", String.valueOf(config.zkConnectionTimeoutMs()));
        values.put("listeners", endpoints(config.listeners()));
        values.put("advertised.listeners", endpoints(config.effectiveAdvertisedBrokerListeners()));
        values.put("inter.broker.listener.name", config.interBrokerListenerName().value());
        return values;
    }

    private static List<String> endpoints(scala.collection.Seq<EndPoint> endpoints) {
        List<String> found = new ArrayList<>();
        for (EndPoint each : scala.jdk.javaapi.CollectionConverters.asJava(endpoints)) {
            String host = each.host() == null ? "" : each.host();
            found.add(each.listenerName().value() + "://" + host + ":" + each.port());
        }
        return found;
    }
}
