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
	Paced paceReport `json:"paced"`
	Fast  paceReport `json:"fast"`
}

type paceReport struct {
	Requests          int                `json:"requests"`
	RequestsPerSecond float64            `json:"requests_per_second"`
	LatencyUs         map[string]float64 `json:"latency_us"`
}

// produce is a client with one request in flight on each connection, for a time instead of a count: at a rate first,
// then as fast as it is answered. It prints a line when it has connected. At the rate, a request that could not be
// sent in time because the answer before it was late counts from when it was due: a stall then shows in as many
// requests as it held up, not in one.
func produce(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	frame := flags.Int("frame-bytes", 1024, "size of a request with its four length bytes")
	answer := flags.Int("response-bytes", 100, "size of an answer with its four length bytes (the load server obeys it)")
	connections := flags.Int("connections", 4, "connections, each with a thread of its own")
	rate := flags.Float64("rate", 1000, "requests a second over all connections")
	paced := flags.Float64("seconds", 2, "how long at the rate")
	fast := flags.Float64("fast-seconds", 2, "how long as fast as requests are answered")
	_ = flags.Parse(arguments)
	if *connections < 1 || *rate <= 0 || *paced**rate < float64(*connections) || *fast <= 0 {
		return fmt.Errorf("--connections must be 1 or more, --rate and --fast-seconds more than 0, --seconds enough for a request on each connection")
	}
	debug.SetGCPercent(-1) // a few megabytes at most, and none of them at a bad moment
	all := make([]*timed, *connections)
	for i := range all {
		var err error
		if all[i], err = connect(*target, *frame, *answer, 1, false, 1<<16); err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
		if err = all[i].once(); err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
	}
	if err := report(map[string]int{"connected": *connections}); err != nil {
		return err
	}
	var done produceReport
	var err error
	interval := time.Duration(float64(*connections) / *rate * float64(time.Second))
	started := time.Now()
	if done.Paced, err = producing(all, started, *paced, interval); err != nil {
		return fmt.Errorf("--target %s: %w", *target, err)
	}
	started = started.Add(time.Duration(*paced * float64(time.Second)))
	if done.Fast, err = producing(all, started, *fast, 0); err != nil {
		return fmt.Errorf("--target %s: %w", *target, err)
	}
	return report(done)
}

// producing ends at its time, whatever is still unanswered then, so that what follows begins at its own.
func producing(all []*timed, started time.Time, seconds float64, interval time.Duration) (done paceReport, err error) {
	ended := make(chan error, len(all))
	until := started.Add(time.Duration(seconds * float64(time.Second)))
	for i, c := range all {
		c.latencies = c.latencies[:0]
		go func(i int, c *timed) {
			runtime.LockOSThread()
			ended <- c.produce(started.Add(interval*time.Duration(i)/time.Duration(len(all))), until, interval)
		}(i, c)
	}
	for range all {
		if err := <-ended; err != nil {
			return done, err
		}
	}
	var latencies []time.Duration
	for _, c := range all {
		latencies = append(latencies, c.latencies...)
	}
	done = paceReport{Requests: len(latencies), RequestsPerSecond: float64(len(latencies)) / seconds}
	if len(latencies) > 0 {
		done.LatencyUs = percentiles(latencies)
	}
	return done, nil
}

func (c *timed) produce(due, until time.Time, interval time.Duration) error {
	for {
		since := time.Now()
		if since.After(until) {
			break
		}
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
		if err := c.once(); err != nil {
			answers := len(c.latencies)
			c.latencies = append(c.latencies, time.Since(since))
			return fmt.Errorf("after %d answers: %w", answers, err)
		}
		c.latencies = append(c.latencies, time.Since(since))
	}
	if interval > 0 { // those that a stall kept from being sent at all have waited until now
		for now := time.Now(); due.Before(until); due = due.Add(interval) {
			c.latencies = append(c.latencies, now.Sub(due))
		}
	}
	return nil
}

// once sends a request and reads its answer.
func (c *timed) once() error {
	binary.BigEndian.PutUint32(c.templates[0][correlationAt:], c.next)
	if _, err := c.stream.Write(c.templates[0]); err != nil {
		return err
	}
	answered := false
	found := func(prefix []byte, length int) error {
		if got := binary.BigEndian.Uint32(prefix); got != c.next || length+4 != c.answer {
			return fmt.Errorf("correlation id %d with %d bytes is answered, %d with %d expected", got, length+4, c.next, c.answer)
		}
		answered = true
		return nil
	}
	for !answered {
		n, err := c.stream.Read(c.buffer)
		if err != nil {
			return fmt.Errorf("connection closed or no answer in time (%v)", err)
		}
		if err := c.frames.feed(c.buffer[:n], found); err != nil {
			return err
		}
	}
	c.next++
	return nil
}
