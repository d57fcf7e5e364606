package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
)

const (
	// jitterShare is the most that a jittered frame differs from the asked size, each way.
	jitterShare = 0.1
	jitterSeed  = 714
	// templateBytes bounds the memory of one connection for frames of different sizes.
	templateBytes = 16 << 20
	// copyBelow: smaller frames are joined, so that everything that may be sent leaves in one write.
	copyBelow = 64 << 10
)

// timing is the report about requests, or pairs of a get and a push.
type timing struct {
	Requests    int             `json:"requests"`
	WallSeconds float64         `json:"wall_seconds"`
	BytesMoved  int64           `json:"bytes_moved"`
	CPUSeconds  map[int]float64 `json:"cpu_seconds"`
	TLS         string          `json:"tls"`
	latencies
}

// latencies has percentiles in microseconds.
type latencies struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
}

// timed is one connection with a fixed number of requests in flight.
type timed struct {
	stream    io.ReadWriter
	file      *os.File // owns the descriptor
	inFlight  int
	answer    int
	templates [][]byte
	frames    scanner
	buffer    []byte
	out       []byte
	sentAt    []time.Time
	next      uint32
	bytes     int64
	latencies []time.Duration
}

func client(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	frame := flags.Int("frame-bytes", 1024, "size of a request with its four length bytes")
	answer := flags.Int("response-bytes", 100, "size of an answer with its four length bytes (the load server obeys it)")
	inFlight := flags.Int("in-flight", 1, "requests in flight on each connection")
	connections := flags.Int("connections", 1, "connections, each with a thread of its own")
	requests := flags.Int("requests", 10000, "requests to time, over all connections")
	warmup := flags.Int("warmup", 1000, "requests before those, over all connections")
	fetch := flags.Bool("fetch", false, "send Fetch requests, and get Fetch responses, in place of Produce requests")
	jitter := flags.Bool("jitter", false, "let sizes vary by 10 % each way, from a fixed seed")
	cpu := flags.String("cpu-of", "", "process ids, comma separated, whose CPU time over the timed requests is reported")
	ca := flags.String("ca", "", "PEM file with the CA of the target's certificate, for TLS 1.3; empty: no TLS")
	_ = flags.Parse(arguments)
	if *inFlight < 1 || *connections < 1 || *requests < *connections || *warmup < 0 {
		return fmt.Errorf("--in-flight and --connections must be 1 or more, --requests at least --connections, --warmup 0 or more")
	}
	watched, err := pids(*cpu)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // everything is allocated before the clock starts
	all := make([]*timed, *connections)
	for i := range all {
		if all[i], err = connect(*target, *frame, *answer, *inFlight, *jitter, *fetch, *requests / *connections); err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
	}
	cipher := ""
	if *ca != "" {
		if cipher, err = encrypt(all, *target, *ca); err != nil {
			return fmt.Errorf("--target %s --ca %s: %w", *target, *ca, err)
		}
	}
	if err := together(all, *warmup / *connections); err != nil {
		return err
	}
	for _, c := range all {
		c.latencies, c.bytes = c.latencies[:0], 0
	}
	before, err := cpuSeconds(watched)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := together(all, *requests / *connections); err != nil {
		return err
	}
	done := timing{WallSeconds: time.Since(started).Seconds(), TLS: cipher}
	if done.CPUSeconds, err = cpuSince(before); err != nil {
		return err
	}
	var times []time.Duration
	for _, c := range all {
		times = append(times, c.latencies...)
		done.BytesMoved += c.bytes
	}
	done.Requests = len(times)
	done.BytesMoved += int64(done.Requests) * int64(*answer)
	done.latencies = percentiles(times)
	return report(done)
}

// percentiles sorts the times, of which there is at least one.
func percentiles(times []time.Duration) latencies {
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[min(int(share*float64(len(times))), len(times)-1)].Nanoseconds()) / 1e3
	}
	return latencies{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

func connect(target string, frame, answer, inFlight int, jitter, fetch bool, requests int) (*timed, error) {
	c := &timed{inFlight: inFlight, answer: answer, frames: scanner{want: 4}, buffer: make([]byte, readBuffer),
		sentAt: make([]time.Time, inFlight), latencies: make([]time.Duration, 0, requests)}
	sizes := []int{frame}
	if jitter {
		random := rand.New(rand.NewSource(jitterSeed))
		sizes = make([]int, max(4, min(256, templateBytes/frame)))
		for i := range sizes {
			sizes[i] = frame + int((random.Float64()*2-1)*jitterShare*float64(frame))
		}
	}
	request := produceRequest
	if fetch {
		request = fetchRequest
	}
	for _, size := range sizes {
		template, err := request(size, answer)
		if err != nil {
			return nil, err
		}
		c.templates = append(c.templates, template)
	}
	connection, err := net.Dial("tcp4", target)
	if err != nil {
		return nil, err
	}
	file, err := connection.(*net.TCPConn).File() // a copy of the descriptor
	if err != nil {
		return nil, err
	}
	fd := int(file.Fd()) // in blocking mode from now on
	c.stream, c.file = blocking(fd), file
	// A lost answer must end the run with an error, not hang it.
	return c, syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 20})
}

// together runs count requests on each connection at once, and ends with the last answer.
func together(all []*timed, count int) error {
	ended := make(chan error, len(all))
	for _, c := range all {
		go func(c *timed) {
			runtime.LockOSThread()
			ended <- c.run(count)
		}(c)
	}
	for range all {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

func (c *timed) run(count int) error {
	sent, answered := 0, 0
	first := c.next
	var now time.Time
	found := func(prefix []byte, length int) error {
		expected := first + uint32(answered)
		if got := binary.BigEndian.Uint32(prefix); got != expected {
			return fmt.Errorf("correlation id %d answered, %d expected: the order is lost", got, expected)
		}
		if length+4 != c.answer {
			return fmt.Errorf("an answer of %d bytes, %d expected", length+4, c.answer)
		}
		c.latencies = append(c.latencies, now.Sub(c.sentAt[expected%uint32(c.inFlight)]))
		answered++
		return nil
	}
	for answered < count {
		c.out = c.out[:0]
		now = time.Now()
		for sent < count && sent-answered < c.inFlight {
			template := c.templates[int(c.next)%len(c.templates)]
			binary.BigEndian.PutUint32(template[correlationAt:], c.next)
			c.sentAt[c.next%uint32(c.inFlight)] = now
			c.next++
			sent++
			c.bytes += int64(len(template))
			if len(template) < copyBelow {
				c.out = append(c.out, template...)
				continue
			}
			if _, err := c.stream.Write(template); err != nil {
				return err
			}
		}
		if len(c.out) > 0 {
			if _, err := c.stream.Write(c.out); err != nil {
				return err
			}
		}
		n, err := c.stream.Read(c.buffer)
		if err != nil {
			return fmt.Errorf("connection closed or no answer in time, after %d of %d answers (%v)", answered, count, err)
		}
		now = time.Now()
		if err := c.frames.feed(c.buffer[:n], found); err != nil {
			return err
		}
	}
	return nil
}

// produce sends requests at a rate, one in flight. The time of a request begins when it is due, even if the answer
// before it is late. So a stall shows in every request that it delays, not in one.
func (c *timed) produce(due, until time.Time, interval time.Duration) error {
	for {
		since := time.Now()
		if since.After(until) {
			break
		}
		if wait := due.Sub(since); wait > 0 {
			pause := syscall.NsecToTimespec(wait.Nanoseconds())
			_ = syscall.Nanosleep(&pause, nil) // Go's timers are coarser
			since = time.Now()
		} else {
			since = due
		}
		due = due.Add(interval)
		answers := len(c.latencies)
		err := c.run(1)
		c.latencies = append(c.latencies[:answers], time.Since(since))
		if err != nil {
			return fmt.Errorf("after %d answers: %w", answers, err)
		}
	}
	for now := time.Now(); due.Before(until); due = due.Add(interval) { // a stall prevented these requests
		c.latencies = append(c.latencies, now.Sub(due))
	}
	return nil
}
