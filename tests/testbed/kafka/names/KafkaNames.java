import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.security.KeyFactory;
import java.security.PublicKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.X509EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.JwtValidatorException;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.oauthbearer.internals.secured.CloseableVerificationKeyResolver;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCredentialCallback;
import org.jose4j.jws.JsonWebSignature;

/**
 * Says how Kafka's own classes name a client, for many questions in one life.
 *
 * <p>A question is a line: a word and its arguments in Base64, with blanks between. The answer is a line: "=" and the name
 * in Base64, or "!" and the name of the exception's class where Kafka gives no name. An empty line asks for the answers to
 * the questions so far. Every password and every well-signed token is right here. The one argument of the program is the
 * RSA key, in Base64, that verifies tokens.
 */
public final class KafkaNames {
    private static PublicKey key;

    public static void main(String[] arguments) throws Exception {
        key = KeyFactory.getInstance("RSA").generatePublic(new X509EncodedKeySpec(Base64.getDecoder().decode(arguments[0])));
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            if (line.isEmpty()) {
                System.out.print(answers);
                System.out.flush();
                answers.setLength(0);
                continue;
            }
            String[] words = line.split(" ", -1);
            byte[][] values = new byte[words.length - 1][];
            for (int i = 0; i < values.length; i++)
                values[i] = Base64.getDecoder().decode(words[i + 1]);
            try {
                byte[] name = answer(words[0], values).getBytes(StandardCharsets.UTF_8);
                answers.append('=').append(Base64.getEncoder().encodeToString(name));
            } catch (Exception | StackOverflowError e) {
                answers.append('!').append(e.getClass().getSimpleName());
            }
            answers.append('\n');
        }
    }

    private static String answer(String word, byte[][] values) throws Exception {
        switch (word) {
            case "rules":
                return SslPrincipalMapper.fromRules(text(values[0])).getName(text(values[1]));
            case "subject":
                X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
                    .generateCertificate(new ByteArrayInputStream(values[0]));
                return certificate.getSubjectX500Principal().getName();
            case "PLAIN":
                return loggedIn(new PlainSaslServer(new EverybodyIsRight()), values[0]);
            case "SCRAM-SHA-256":
                return scram(values[0]);
            case "unsecured":
                return loggedIn(new OAuthBearerSaslServer(unsecured(text(values[0]))), values[1]);
            case "signed":
                return loggedIn(new OAuthBearerSaslServer(new Signed(text(values[0]))), values[1]);
            case "error-then-token":
                SaslServer server = new OAuthBearerSaslServer(unsecured("sub"));
                if (server.evaluateResponse(values[0]).length == 0)
                    throw new IllegalStateException("the first token was not refused");
                return loggedIn(server, values[1]);
            default:
                throw new IllegalArgumentException(word);
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String loggedIn(SaslServer server, byte[] token) throws Exception {
        if (server.evaluateResponse(token).length != 0)
            throw new IllegalStateException("refused");
        return "User:" + server.getAuthorizationID();
    }

    /** The name that Kafka takes from the first message, if all that it can refuse there is right. */
    private static String scram(byte[] token) throws Exception {
        EverybodyIsRight everybody = new EverybodyIsRight();
        new ScramSaslServer(ScramMechanism.SCRAM_SHA_256, Map.of(), everybody).evaluateResponse(token);
        return everybody.name;
    }

    private static AuthenticateCallbackHandler unsecured(String claim) {
        AuthenticateCallbackHandler handler = new OAuthBearerUnsecuredValidatorCallbackHandler();
        handler.configure(Map.of(), "OAUTHBEARER", List.of(new AppConfigurationEntry("any",
            AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, Map.of("unsecuredValidatorPrincipalClaimName", claim))));
        return handler;
    }

    private static class EverybodyIsRight implements AuthenticateCallbackHandler {
        String name;

        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        }

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            try {
                ScramCredential credential = new ScramFormatter(ScramMechanism.SCRAM_SHA_256).generateCredential("any", 4096);
                for (Callback callback : callbacks) {
                    if (callback instanceof NameCallback nameCallback) {
                        name = "User:" + nameCallback.getDefaultName();
                    } else if (callback instanceof PlainAuthenticateCallback plain) {
                        plain.authenticated(true);
                    } else if (callback instanceof DelegationTokenCredentialCallback token) {
                        name = name.replaceFirst("^User:", "DelegationToken:");
                        token.tokenOwner("owner");
                        token.scramCredential(credential);
                    } else if (callback instanceof ScramCredentialCallback scram) {
                        scram.scramCredential(credential);
                    } else {
                        throw new UnsupportedCallbackException(callback);
                    }
                }
            } catch (java.security.NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void close() {
        }
    }

    private static final class Signed extends EverybodyIsRight {
        private final BrokerJwtValidator validator;

        Signed(String claim) throws Exception {
            CloseableVerificationKeyResolver resolver = (JsonWebSignature jws,
                List<org.jose4j.jwx.JsonWebStructure> nesting) -> key;
            Constructor<BrokerJwtValidator> constructor =
                BrokerJwtValidator.class.getDeclaredConstructor(CloseableVerificationKeyResolver.class);
            constructor.setAccessible(true);
            validator = constructor.newInstance(resolver);
            validator.configure(Map.of(
                "sasl.oauthbearer.expected.audience", List.of("kafka"),
                "sasl.oauthbearer.expected.issuer", "issuer",
                "sasl.oauthbearer.clock.skew.seconds", 30,
                "sasl.oauthbearer.allow.unverified.audience", false,
                "sasl.oauthbearer.allow.unverified.issuer", false,
                "sasl.oauthbearer.scope.claim.name", "scope",
                "sasl.oauthbearer.sub.claim.name", claim), "OAUTHBEARER", List.of());
        }

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerValidatorCallback token) {
                    try {
                        token.token(validator.validate(token.tokenValue()));
                    } catch (JwtValidatorException e) {
                        token.error("invalid_token", null, null);
                    }
                } else if (callback instanceof OAuthBearerExtensionsValidatorCallback extensions) {
                    extensions.inputExtensions().map().keySet().forEach(extensions::valid);
                }
            }
        }
    }
}
