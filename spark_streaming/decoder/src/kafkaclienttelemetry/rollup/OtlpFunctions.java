package kafkaclienttelemetry.rollup;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Spark session extension with the SQL functions that decode pushes.
 *
 * <p>The functions are native expressions on Spark's internal types, because a public Java UDF
 * takes twice as long with its conversions. That API is internal, so Spark's version is pinned.
 */
public final class OtlpFunctions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    static final ArrayData NO_ROWS = new GenericArrayData(new Object[0]);

    private static final DataType KEY = new ObjectType(IdKey.class);
    private static final List<AbstractDataType> PUSH =
            List.of(DataTypes.BinaryType, DataTypes.StringType, DataTypes.LongType, DataTypes.StringType, KEY);

    /** Called by Spark, which loads the extension by its class name. */
    public OtlpFunctions() {}

    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        register(extensions, "otlp_entries", Entries.class, Entries.TYPE, PUSH);
        register(extensions, "otlp_histograms", Histograms.class, Histograms.TYPE, PUSH);
        register(extensions, "otlp_series", Series.class, Series.TYPE, PUSH);
        register(extensions, "otlp_data_points", DataPoints.class, DataPoints.TYPE, List.of(DataTypes.BinaryType));
        register(extensions, "otlp_cost", Cost.class, Cost.TYPE, PUSH);
        return BoxedUnit.UNIT;
    }

    private static void register(
            SparkSessionExtensions extensions,
            String name,
            Class<?> reader,
            DataType type,
            List<AbstractDataType> parameters) {
        Function1<Seq<Expression>, Expression> builder = new AbstractFunction1<>() {
            @Override
            public Expression apply(Seq<Expression> arguments) {
                if (arguments.length() != parameters.size()) {
                    throw new IllegalArgumentException(
                            name + " takes " + parameters.size() + " arguments, not " + arguments.length());
                }
                List<Expression> given = new ArrayList<>(CollectionConverters.asJava(arguments));
                int last = given.size() - 1;
                if (parameters.get(last) == KEY) {
                    given.set(last, key(name, given.get(last)));
                }
                // The reader handles a null payload or instance.
                return new StaticInvoke(
                        reader,
                        type,
                        "read",
                        CollectionConverters.asScala(given).toSeq(),
                        CollectionConverters.asScala(parameters).toSeq(),
                        false,
                        true,
                        true,
                        Option.empty());
            }
        };
        extensions.injectFunction(
                new Tuple3<>(new FunctionIdentifier(name), new ExpressionInfo(reader.getName(), name), builder));
    }

    private static Expression key(String name, Expression id) {
        if (!(id instanceof Literal literal) || !(literal.value() instanceof UTF8String text)) {
            throw new IllegalArgumentException(
                    name + " takes the id of a registered IdKey, a text literal, as its last argument");
        }
        return Literal.fromObject(IdKey.of(text.toString()), KEY);
    }

    /** Returns the result for a malformed push. */
    static InternalRow error(String problem) {
        return new GenericInternalRow(new Object[] {UTF8String.fromString(problem), NO_ROWS});
    }

    /** Returns the error for a push on which the decoder fails. One push must not stop a batch. */
    static String bug(Throwable bug) {
        return "the decoder failed with " + bug.getClass().getName() + ", which is a bug: report it with this payload";
    }
}
