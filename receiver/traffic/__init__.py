"""What each connection has moved, and for whom: counters that outlive a process."""
