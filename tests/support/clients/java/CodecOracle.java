import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/** Decompresses files as Kafka's clients decompress the records of a batch: NAME.CODEC each. */
public final class CodecOracle {
    private CodecOracle() {
    }

    public static void main(String[] arguments) throws Exception {
        List<Path> paths = new ArrayList<>();
        try (DirectoryStream<Path> found = Files.newDirectoryStream(Path.of(arguments[0]))) {
            found.forEach(paths::add);
        }
        Collections.sort(paths);
        for (Path path : paths) {
            System.out.println(path.getFileName() + "\t" + judged(path));
        }
    }

    private static String judged(Path path) throws Exception {
        String name = path.getFileName().toString();
        int codec = Integer.parseInt(name.substring(name.lastIndexOf('.') + 1));
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(path));
        Compression compression = Compression.of(CompressionType.forId(codec)).build();
        CRC32 sum = new CRC32();
        long size = 0;
        try (InputStream in = compression.wrapForInput(
                data, RecordBatch.MAGIC_VALUE_V2, BufferSupplier.create())) {
            byte[] part = new byte[16384];
            for (int count = in.read(part); count > 0; count = in.read(part)) {
                sum.update(part, 0, count);
                size += count;
            }
        } catch (Throwable error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "error\t" + String.valueOf(cause).replaceAll("\\s+", " ");
        }
        return size + "\t" + sum.getValue();
    }
}
