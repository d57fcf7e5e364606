package kafkaclienttelemetry.rollup;

/** Bytes that are no push, with what is wrong with them and where. */
final class MalformedException extends Exception {
    private static final long serialVersionUID = 1L;

    /** Without a stack trace: bad bytes are data, and a flood of them must cost no more than good ones. */
    MalformedException(String problem) {
        super(problem, null, false, false);
    }

    MalformedException(String problem, int position) {
        this(problem + " at byte " + position);
    }
}
