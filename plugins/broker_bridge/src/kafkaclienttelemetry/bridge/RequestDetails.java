package kafkaclienttelemetry.bridge;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.util.Optional;
import kafkaclienttelemetry.bridge.Counters.Count;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Reads what the public request context lacks, from Kafka's internal one.
 *
 * <p>A broker whose internals have moved gives none of it. The first failure is counted, and then
 * nothing is tried again.
 */
final class RequestDetails {
    private final Counters counters;
    /** Of the field that Kafka has since 3.8, or null. */
    private volatile MethodHandle port = portField();
    private volatile boolean readable = true;

    RequestDetails(Counters counters) {
        this.counters = counters;
    }

    int port(AuthorizableRequestContext context) {
        MethodHandle field = port;
        if (field == null) {
            return Push.UNKNOWN_PORT;
        }
        try {
            Object value = context instanceof RequestContext ? field.invoke(context) : null;
            return value instanceof Optional && ((Optional<?>) value).isPresent()
                    ? (Integer) ((Optional<?>) value).get()
                    : Push.UNKNOWN_PORT;
        } catch (Throwable error) {
            port = null;
            counters.add(Count.UNREADABLE);
            return Push.UNKNOWN_PORT;
        }
    }

    String connectionId(AuthorizableRequestContext context) {
        if (readable) {
            try {
                return context instanceof RequestContext ? ((RequestContext) context).connectionId : "";
            } catch (LinkageError error) {
                failed();
            }
        }
        return "";
    }

    String softwareName(AuthorizableRequestContext context) {
        if (readable) {
            try {
                ClientInformation client = client(context);
                return client == null ? "" : client.softwareName();
            } catch (LinkageError error) {
                failed();
            }
        }
        return "";
    }

    String softwareVersion(AuthorizableRequestContext context) {
        if (readable) {
            try {
                ClientInformation client = client(context);
                return client == null ? "" : client.softwareVersion();
            } catch (LinkageError error) {
                failed();
            }
        }
        return "";
    }

    private static ClientInformation client(AuthorizableRequestContext context) {
        return context instanceof RequestContext ? ((RequestContext) context).clientInformation : null;
    }

    private void failed() {
        readable = false;
        counters.add(Count.UNREADABLE);
    }

    private static MethodHandle portField() {
        try {
            return MethodHandles.publicLookup()
                    .findGetter(RequestContext.class, "clientPort", Optional.class);
        } catch (ReflectiveOperationException | LinkageError error) {
            return null;
        }
    }
}
