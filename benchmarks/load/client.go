package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"runtime"
	"runtime/debug"
	"sort"
	"syscall"
	"time"
)

const (
	// jitterShare is how far a jittered frame may be from the asked size, each way.
	jitterShare = 0.1
	jitterSeed  = 714
	// templateBytes bounds what one connection keeps for frames of differing sizes.
	templateBytes = 16 << 20
	// copyBelow: smaller frames are put together so that all that may be sent leaves in one write.
	copyBelow = 64 << 10
)

type clientReport struct {
	Requests          int                `json:"requests"`
	WallSeconds       float64            `json:"wall_seconds"`
	RequestsPerSecond float64            `json:"requests_per_second"`
	BytesSent         int64              `json:"bytes_sent"`
	BytesReceived     int64              `json:"bytes_received"`
	LatencyUs         map[string]float64 `json:"latency_us"`
	CPUSeconds        cpuTimes           `json:"cpu_seconds"`
	TLS               string             `json:"tls"`
}

// timed is one connection with a fixed number of requests in flight.
type timed struct {
	stream    io.ReadWriter
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
	jitter := flags.Bool("jitter", false, "let sizes vary by 10 % each way, from a fixed seed")
	cpu := flags.String("cpu-of", "", "process ids, comma separated, whose CPU time over the timed requests is reported")
	ca := flags.String("ca", "", "PEM file with who signed the target's certificate: speak TLS 1.3")
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
		if all[i], err = connect(*target, *frame, *answer, *inFlight, *jitter, *requests / *connections); err != nil {
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
	before, err := cpuOf(watched)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := together(all, *requests / *connections); err != nil {
		return err
	}
	wall := time.Since(started).Seconds()
	after, err := cpuOf(watched)
	if err != nil {
		return err
	}
	done := clientReport{WallSeconds: wall, CPUSeconds: after.since(before), TLS: cipher}
	var latencies []time.Duration
	for _, c := range all {
		latencies = append(latencies, c.latencies...)
		done.BytesSent += c.bytes
	}
	done.Requests = len(latencies)
	done.RequestsPerSecond = float64(done.Requests) / wall
	done.BytesReceived = int64(done.Requests) * int64(*answer)
	done.LatencyUs = percentiles(latencies)
	return report(done)
}

func percentiles(latencies []time.Duration) map[string]float64 {
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(share float64) float64 {
		return float64(latencies[min(int(share*float64(len(latencies))), len(latencies)-1)].Nanoseconds()) / 1e3
	}
	return map[string]float64{"p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": at(1)}
}

func connect(target string, frame, answer, inFlight int, jitter bool, requests int) (*timed, error) {
	address, err := net.ResolveTCPAddr("tcp4", target)
	if err != nil {
		return nil, err
	}
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
	for _, size := range sizes {
		template, err := produceRequest(size, answer)
		if err != nil {
			return nil, err
		}
		c.templates = append(c.templates, template)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c.stream = blocking(fd)
	where := &syscall.SockaddrInet4{Port: address.Port}
	copy(where.Addr[:], address.IP.To4())
	if err := syscall.Connect(fd, where); err != nil {
		return nil, err
	}
	// A lost answer must end the run with an error, not hang it.
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 20}); err != nil {
		return nil, err
	}
	return c, syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
}

func max(a, b int) int { return -min(-a, -b) }

// together runs count requests on each connection at once, and ends when every answer is in.
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
			return fmt.Errorf("connection closed or no answer within 20 s, after %d of %d answers (%v)", answered, count, err)
		}
		now = time.Now()
		if err := c.frames.feed(c.buffer[:n], found); err != nil {
			return err
		}
	}
	return nil
}
