import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import org.apache.kafka.common.utils.Utils;

/** What kafka-consumer-groups makes of times ("t" and a text) and durations ("d"), line by line. */
public final class TimesOracle {
    public static void main(String[] words) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String text = line.substring(1);
            try {
                System.out.println(line.charAt(0) == 't'
                    ? Utils.getDateTime(text)
                    : Instant.EPOCH.minus(Duration.parse(text)).toEpochMilli());
            } catch (Exception error) {
                System.out.println("refused");
            }
        }
    }
}
