import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

/** What Java reads: a case a line of standard input (`properties` or `jaas`, and the bytes in base64), its answer a line of output. */
public class Answers {
    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = input.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            byte[] bytes = Base64.getDecoder().decode(parts[1]);
            String answer;
            try {
                answer = parts[0].equals("jaas") ? jaas(new String(bytes, StandardCharsets.UTF_8)) : properties(bytes);
            } catch (IllegalArgumentException refused) {
                answer = "refused";
            }
            System.out.println(answer);
        }
    }

    private static String text(String value) {
        return Base64.getEncoder().encodeToString(value.getBytes(StandardCharsets.UTF_8));
    }

    private static String pairs(Map<?, ?> found) {
        StringBuilder answer = new StringBuilder();
        for (Map.Entry<?, ?> each : found.entrySet())
            answer.append(" ").append(text(each.getKey() == null ? "" : (String) each.getKey()))
                .append(":").append(text((String) each.getValue()));
        return answer.toString();
    }

    /** As the tools of Kafka load a file: as bytes, which Java takes for ISO-8859-1. */
    private static String properties(byte[] bytes) throws IOException {
        Properties found = new Properties();
        found.load(new ByteArrayInputStream(bytes));
        return "read" + pairs(found);
    }

    /** As JaasConfig and JaasContext of Kafka's clients read the value of sasl.jaas.config. */
    private static String jaas(String value) throws IOException {
        StreamTokenizer tokenizer = new StreamTokenizer(new StringReader(value));
        tokenizer.slashSlashComments(true);
        tokenizer.slashStarComments(true);
        tokenizer.wordChars('-', '-');
        tokenizer.wordChars('_', '_');
        tokenizer.wordChars('$', '$');
        List<String> modules = new ArrayList<>();
        Map<String, String> options = new HashMap<>();
        while (tokenizer.nextToken() != StreamTokenizer.TT_EOF) {
            String module = tokenizer.sval;
            if (module == null || module.isEmpty())
                throw new IllegalArgumentException("no class of this name can be loaded");
            if (tokenizer.nextToken() == StreamTokenizer.TT_EOF || tokenizer.sval == null
                || !Set.of("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL").contains(tokenizer.sval.toUpperCase(Locale.ROOT)))
                throw new IllegalArgumentException("control flag");
            while (tokenizer.nextToken() != StreamTokenizer.TT_EOF && tokenizer.ttype != ';') {
                String key = tokenizer.sval;
                if (tokenizer.nextToken() != '=' || tokenizer.nextToken() == StreamTokenizer.TT_EOF || tokenizer.sval == null)
                    throw new IllegalArgumentException("value not specified");
                options.put(key, tokenizer.sval);
            }
            if (tokenizer.ttype != ';')
                throw new IllegalArgumentException("semicolon");
            modules.add(module);
        }
        if (modules.size() != 1)
            throw new IllegalArgumentException("one login module is expected");
        return "read " + text(modules.get(0)) + pairs(options);
    }
}
