package kafkaclienttelemetry.rollup;

/** A malformed push. The message says what is wrong and where. */
final class MalformedException extends Exception {
    private static final long serialVersionUID = 1L;

    /** Has no stack trace, so that a flood of malformed pushes costs no more than valid ones. */
    MalformedException(String problem) {
        super(problem, null, false, false);
    }

    MalformedException(String problem, int position) {
        this(problem + " at byte " + position);
    }
}
