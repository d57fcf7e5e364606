package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

type produceReport struct {
	Requests          int                `json:"requests"`
	WallSeconds       float64            `json:"wall_seconds"`
	RequestsPerSecond float64            `json:"requests_per_second"`
	LatencyUs         map[string]float64 `json:"latency_us"`
}

// produce is a client with one request in flight on each connection, for a time instead of a count. With a rate,
// a request that could not be sent in time because the answer before it was late counts from when it was due: a
// stall then shows in as many requests as it held up, not in one.
func produce(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	frame := flags.Int("frame-bytes", 1024, "size of a request with its four length bytes")
	answer := flags.Int("response-bytes", 100, "size of an answer with its four length bytes (the load server obeys it)")
	connections := flags.Int("connections", 4, "connections, each with a thread of its own")
	seconds := flags.Float64("seconds", 2, "how long")
	rate := flags.Float64("rate", 0, "requests a second over all connections; 0: each follows the answer before it at once")
	_ = flags.Parse(arguments)
	if *connections < 1 || *seconds <= 0 || *rate < 0 {
		return fmt.Errorf("--connections must be 1 or more, --seconds more than 0, --rate 0 or more")
	}
	var interval time.Duration
	if *rate > 0 {
		interval = time.Duration(float64(*connections) / *rate * float64(time.Second))
	}
	debug.SetGCPercent(-1) // a few megabytes at most, and none of them at a bad moment
	all := make([]*timed, *connections)
	ended := make(chan error, *connections)
	started := time.Now()
	until := started.Add(time.Duration(*seconds * float64(time.Second)))
	for i := range all {
		go func(i int) {
			runtime.LockOSThread()
			var err error
			if all[i], err = connect(*target, *frame, *answer, 1, false, 1<<16); err == nil {
				err = all[i].produce(started.Add(interval*time.Duration(i)/time.Duration(*connections)), until, interval)
			}
			ended <- err
		}(i)
	}
	for range all {
		if err := <-ended; err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
	}
	wall := time.Since(started).Seconds()
	var latencies []time.Duration
	for _, c := range all {
		latencies = append(latencies, c.latencies...)
	}
	if len(latencies) == 0 {
		return fmt.Errorf("--target %s: no request was due within %v s", *target, *seconds)
	}
	return report(produceReport{Requests: len(latencies), WallSeconds: wall,
		RequestsPerSecond: float64(len(latencies)) / wall, LatencyUs: percentiles(latencies)})
}

func (c *timed) produce(due, until time.Time, interval time.Duration) error {
	answered := 0
	found := func(prefix []byte, length int) error {
		if got := binary.BigEndian.Uint32(prefix); got != c.next || length+4 != c.answer {
			return fmt.Errorf("correlation id %d with %d bytes is answered, %d with %d expected", got, length+4, c.next, c.answer)
		}
		answered++
		return nil
	}
	for requests := 1; ; requests++ {
		since := time.Now()
		if interval > 0 {
			if wait := due.Sub(since); wait > 0 {
				pause := syscall.NsecToTimespec(wait.Nanoseconds())
				_ = syscall.Nanosleep(&pause, nil) // the thread's own sleep: Go's timers are coarser
				since = time.Now()
			} else {
				since = due
			}
			due = due.Add(interval)
		}
		if since.After(until) {
			return nil
		}
		binary.BigEndian.PutUint32(c.templates[0][correlationAt:], c.next)
		if err := c.write(c.templates[0]); err != nil {
			return fmt.Errorf("request %d: %w", requests, err)
		}
		for answered < requests {
			n, err := syscall.Read(c.fd, c.buffer)
			if err == syscall.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return fmt.Errorf("connection closed or no answer within 20 s, after %d answers (%v)", answered, err)
			}
			if err := c.frames.feed(c.buffer[:n], found); err != nil {
				return err
			}
		}
		c.latencies = append(c.latencies, time.Since(since))
		c.next++
	}
}
