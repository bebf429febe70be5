import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] words) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString(words[1]);
        var request = HttpRequest.newBuilder(URI.create(words[0])).POST(body).build();
        var client = HttpClient.newHttpClient();
        System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
