package kafkaclienttelemetry.rollup;

/**
 * The buckets of a distribution's spread: eight for each doubling.
 *
 * <p>They are taken from exponent and mantissa, because a logarithm's last bit differs from one library to the
 * next, and what is added here is taken away elsewhere when a client has spoken several times.
 */
final class Spread {
    private static final short ZERO = -32768;
    private static final int NEGATIVE = -20000;

    /** 2 to the power of i/8: where a bucket begins among mantissas of [1, 2). */
    private static final double[] BEGINNINGS = {
        1.0,
        1.0905077326652577,
        1.189207115002721,
        1.2968395546510096,
        1.4142135623730951,
        1.5422108254079407,
        1.681792830507429,
        1.8340080864093424,
    };

    private Spread() {}

    /** The bucket of a value as {@link Value#storable} gives it: 0, or far from the ends of a double's range. */
    static short bucket(double value) {
        if (value == 0) {
            return ZERO;
        }
        double size = Math.abs(value);
        int exponent = Math.getExponent(size);
        double mantissa = Math.scalb(size, -exponent);
        int eighth = 7;
        while (mantissa < BEGINNINGS[eighth]) {
            eighth--;
        }
        int bucket = 8 * exponent + eighth;
        return (short) (value > 0 ? bucket : NEGATIVE - bucket);
    }
}
