/* Time of day for the tests of `make test-clock`, by LD_PRELOAD: it starts at CLOCK_START_NS (since
 * the epoch) and goes CLOCK_FACTOR times as fast. CLOCK_REAL_NS is the machine's own at that moment.
 * Monotonic clocks, which waits and deadlines use, stay as they are. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long start, real, factor;

__attribute__((constructor)) static void read_settings(void) {
    start = atoll(getenv("CLOCK_START_NS"));
    real = atoll(getenv("CLOCK_REAL_NS"));
    factor = atoll(getenv("CLOCK_FACTOR"));
}

static long long now(void) {
    struct timespec machine;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &machine);
    return start + (machine.tv_sec * SECOND + machine.tv_nsec - real) * factor;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, time);
    long long at = now();
    time->tv_sec = at / SECOND;
    time->tv_nsec = at % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    long long at = now();
    time->tv_sec = at / SECOND;
    time->tv_usec = at % SECOND / 1000;
    return 0;
}

time_t time(time_t *result) {
    time_t at = now() / SECOND;
    if (result)
        *result = at;
    return at;
}
