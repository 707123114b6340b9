import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;

/** A stock client of the JDK, which offers h2c on every plain connection. One line an answer. */
public final class JdkClient {
    private static final String FAR = "\"at\":\"2040-01-31T09:00:00Z\"";
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        String base = arguments[0];
        String json = "application/json";
        post(base + "/v1/messages", json, BodyPublishers.ofString("{\"id\":\"jdk\"," + FAR + "}"));
        post(base + "/v1/messages", json, streamed("{\"id\":\"jdk-chunked\"," + FAR + "}"));
        StringBuilder lines = new StringBuilder();
        for (int number = 0; number < 3000; number++) {
            lines.append("{\"id\":\"line").append(number).append("\",").append(FAR).append("}\n");
        }
        post(base + "/v1/messages/batch", "application/x-ndjson", streamed(lines.toString()));
        post(base + "/v1/messages/batch", json, BodyPublishers.ofString("[{\"id\":\"array\"," + FAR + "}]"));
        post(base + "/ticks", json, BodyPublishers.ofString("{\"item\":\"u\"," + FAR + "}"));
        post(base + "/v1/rooms/sale/join", json, BodyPublishers.ofString("{\"user\":\"ann\"}"));
        post(base + "/v1/nowhere", json, BodyPublishers.ofString("x".repeat(1 << 20)));
        send(HttpRequest.newBuilder(URI.create(base + "/v1/messages/jdk")).GET());
        send(HttpRequest.newBuilder(URI.create(base + "/v1/messages/jdk")).DELETE());
    }

    private static BodyPublisher streamed(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(bytes));
    }

    private static void post(String url, String type, BodyPublisher body) throws Exception {
        send(HttpRequest.newBuilder(URI.create(url)).header("content-type", type).POST(body));
    }

    private static void send(HttpRequest.Builder request) throws Exception {
        HttpResponse<String> answer = CLIENT.send(request.build(), BodyHandlers.ofString());
        int lines = (int) answer.body().lines().count();
        System.out.println(answer.version() + " " + answer.statusCode() + " " + lines);
    }
}
