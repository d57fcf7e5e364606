package kafkaclienttelemetry.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Collection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Which receivers the bridge trusts. */
final class Trust {
    private Trust() {}

    /**
     * Makes a TLS context, anew for each connection: the certificates may have changed.
     *
     * @param caFile certificates in PEM, or null for those that Java trusts
     */
    static SSLContext context(Path caFile) throws IOException, GeneralSecurityException {
        KeyStore store = null;
        if (caFile != null) {
            store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int number = 0;
            for (Certificate certificate : certificates(caFile)) {
                store.setCertificateEntry("ca-" + number++, certificate);
            }
        }
        TrustManagerFactory factory =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    private static Collection<? extends Certificate> certificates(Path file)
            throws IOException, GeneralSecurityException {
        try (InputStream in = Files.newInputStream(file)) {
            Collection<? extends Certificate> found =
                    CertificateFactory.getInstance("X.509").generateCertificates(in);
            if (found.isEmpty()) {
                throw new IOException(BridgeConfig.TLS_CA_FILE + ": no certificate in " + file);
            }
            return found;
        }
    }
}
