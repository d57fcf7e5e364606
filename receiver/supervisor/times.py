"""The time limits of the supervisor, in seconds."""

from __future__ import annotations

#: Between two questions to each child whether it is alive.
PING_EVERY_S = 5.0

#: Questions without an answer after which a child is killed. Counted, because all processes may
#: have been suspended together.
MAX_UNANSWERED = 3

#: The same for a child that is not ready yet and can't answer: two minutes.
MAX_UNREADY = 24

#: Further questions that do not count, because the child had no processor: five minutes.
MAX_STARVED = 60

#: That a child has to end beyond the time it was given.
GRACE_S = 10.0

#: After which a start that has to wait for a reload is tried again.
RETRY_S = 0.1

#: That the processes have to prepare a configuration, and again to apply it.
RELOAD_WITHIN_S = 60.0

#: That a new version has for its first message, to ask for the end of the core once it has the
#: sockets, and to accept clients once the core has ended. A child that is not ready after two
#: minutes is killed, and so the new version ends.
TAKE_OVER_WITHIN_S = 10.0
RELEASE_WITHIN_S = 60.0
ACCEPT_WITHIN_S = 120.0

#: Rest after an event that failed, because the same event may come again at once.
REST_S = 0.1
