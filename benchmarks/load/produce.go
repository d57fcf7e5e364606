package main

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"
)

type paceReport struct {
	Requests          int                `json:"requests"`
	RequestsPerSecond float64            `json:"requests_per_second"`
	LatencyUs         map[string]float64 `json:"latency_us"`
}

// produce sends requests at a rate, one in flight. A request that could not be sent in time because the answer before
// it was late counts from when it was due: a stall then shows in as many requests as it held up, not in one.
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
