package kafkaclienttelemetry.rollup;

/** The data points of one client instance and time in a push. */
final class Entry {
    final Labels labels;
    final long timeNs;
    final long minute;
    /** Whether it is the first entry of its instance in the push. */
    final boolean isFirst;
    /** Whether its minute is not before the plan's first minute. */
    final boolean isKept;

    int points;
    /** Points that count nothing: repeated ones, and sums below 0 that only rise. */
    int leftOut;

    /** Histograms and summaries, without cumulative ones. */
    int histograms;
    /**
     * Points that depend on the client's other pushes. This and the following are null if empty.
     */
    PackedColumns gauges;
    /** Points that are only added or compared. */
    PackedColumns added;
    PackedColumns cumulative;
    /** The parts of cumulative histograms: count, sum and buckets, in this order. */
    PackedColumns cumulativeHistograms;
    double[] watched;

    Entry(Labels labels, long timeNs, long minute, boolean isFirst, boolean isKept) {
        this.labels = labels;
        this.timeNs = timeNs;
        this.minute = minute;
        this.isFirst = isFirst;
        this.isKept = isKept;
    }
}
