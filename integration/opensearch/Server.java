import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** One node of OpenSearch, which ends with its standard input: java -cp 'JARS/*' Server.java HOME PORT. */
class Server extends Node {
    Server(Settings settings) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"), List.of(Netty4Plugin.class), true);
    }

    public static void main(String[] args) throws Exception {
        var settings = Settings.builder()
            .put("path.home", args[0])
            .put("http.host", "127.0.0.1").put("http.port", args[1]).put("http.type", "netty4")
            .put("transport.host", "127.0.0.1").put("transport.port", "0").put("transport.type", "netty4")
            .put("discovery.type", "single-node").put("node.name", "node").put("cluster.name", "forebay")
            .put("node.processors", "2").put("cluster.routing.allocation.disk.threshold_enabled", "false");
        var node = new Server(settings.build());
        node.start();
        while (System.in.read() >= 0) {
        }
        node.close();
        System.exit(0);
    }
}
