import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's REST catalog on a free port of loopback: `IcebergCatalog WAREHOUSE`, prints the port. */
public class IcebergCatalog {
    public static void main(String[] arguments) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.setConf(new Configuration());
        catalog.initialize(
                "rest",
                Map.of(
                        "uri", "jdbc:sqlite:" + arguments[0] + "/catalog.db",
                        "warehouse", arguments[0],
                        "jdbc.schema-version", "V1"));
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(
                new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        server.setHandler(context);
        server.start();
        System.out.println(((ServerConnector) server.getConnectors()[0]).getLocalPort());
        System.in.read(); // the end of the test closes it
        server.stop();
    }
}
