package kafkaclienttelemetry.rollup;

/** What one client instance said at one time. */
final class Entry {
    final Labels labels;
    final long timeNs;
    final long minute;
    /** Whether it is the first of its instance in the push. */
    final boolean isFirst;
    /** Whether its minute is one that is wanted. */
    final boolean isKept;

    int points;
    int histograms;
    /** Numbers that depend on the client's other pushes; null until there is one, as the others. */
    PackedColumns gauges;
    /** Numbers that are only added up or compared. */
    PackedColumns added;
    PackedColumns cumulative;
    double[] watched;

    Entry(Labels labels, long timeNs, long minute, boolean isFirst, boolean isKept) {
        this.labels = labels;
        this.timeNs = timeNs;
        this.minute = minute;
        this.isFirst = isFirst;
        this.isKept = isKept;
    }
}
