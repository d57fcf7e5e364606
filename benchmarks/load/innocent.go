package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// answeredWithin is the time limit of an answer; Kafka's request.timeout.ms is 30 s.
const answeredWithin = 60 * time.Second

// innocentReport has the times of small requests and the longest of telemetry requests, null without one. Gets and
// pushes are counted by error code. Problem says why a connection ended early.
type innocentReport struct {
	Requests         int            `json:"requests"`
	LongestMs        float64        `json:"longest_ms"`
	P99Ms            float64        `json:"p99_ms"`
	TelemetryLongest *float64       `json:"telemetry_longest_ms"`
	Gets             map[uint16]int `json:"gets"`
	Pushes           map[uint16]int `json:"pushes"`
	CPUSeconds       float64        `json:"cpu_seconds"`
	Problem          string         `json:"problem"`
}

// innocent is a client beside an attack. One connection sends small requests at a rate; others are clients that push
// telemetry at their push interval. The time of a request begins when it is due. It prints a line after it has
// connected. A closed connection or a missing answer is a result, not an error: it is reported with the wait so far.
func innocent(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	rate := flags.Float64("rate", 200, "small requests a second")
	seconds := flags.Float64("seconds", 5, "how long")
	file := flags.String("payload", "", "file with the Metrics field's bytes of each push, compressed already")
	codec := flags.String("codec", "none", "its compression: none, gzip, snappy, lz4, zstd")
	clients := flags.Int("clients", 1, "clients that push telemetry; 0: none")
	late := flags.Float64("late", 0, "seconds from the start after which those clients connect")
	_ = flags.Parse(arguments)
	number, known := codecNumbers[*codec]
	if !known || *rate <= 0 || *seconds <= 0 || *clients < 0 {
		return fmt.Errorf("--codec is none, gzip, snappy, lz4 or zstd; --rate and --seconds more than 0, --clients 0 or more")
	}
	payload, err := os.ReadFile(*file)
	if err != nil && *clients > 0 {
		return fmt.Errorf("--payload: %w", err)
	}
	debug.SetGCPercent(-1)
	asking, err := connect(*target, 128, 100, 1, false, false, 1<<14)
	if err != nil {
		return fmt.Errorf("--target %s: %w", *target, err)
	}
	timeout := syscall.Timeval{Sec: int64(answeredWithin / time.Second)}
	if err := syscall.SetsockoptTimeval(int(asking.stream.(blocking)), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	if err := asking.run(1); err != nil {
		return fmt.Errorf("--target %s: %w", *target, err)
	}
	asking.latencies = asking.latencies[:0]
	p := &pusher{target: *target, payload: payload, codec: number, counts: newCounts()}
	if *late == 0 {
		if err := p.open(*clients); err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
	}
	if err := report(map[string]int{"connected": 1}); err != nil {
		return err
	}
	started := time.Now()
	until := started.Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		if *late > 0 {
			time.Sleep(time.Until(started.Add(time.Duration(*late * float64(time.Second)))))
			if err := p.open(*clients); err != nil {
				p.failed(err)
			}
		}
		p.run(until)
	}()
	runtime.LockOSThread()
	done := innocentReport{Gets: p.gets, Pushes: p.pushes}
	if err := asking.produce(started, until, time.Duration(float64(time.Second) / *rate)); err != nil {
		done.Problem = err.Error()
	}
	group.Wait()
	done.Problem += p.problem
	times := percentiles(asking.latencies)
	done.Requests, done.LongestMs, done.P99Ms = len(asking.latencies), times.Max/1e3, times.P99/1e3
	if len(p.latencies) > 0 {
		longest := percentiles(p.latencies).Max / 1e3
		done.TelemetryLongest = &longest
	}
	used, err := cpuSeconds([]int{os.Getpid()})
	if err != nil {
		return err
	}
	done.CPUSeconds = used[os.Getpid()]
	return report(done)
}

// pusher has the innocent clients that push telemetry.
type pusher struct {
	target    string
	payload   []byte
	codec     byte
	held      []net.Conn
	latencies []time.Duration
	problem   string
	*counts
}

// counts has the answers of all connections by error code.
type counts struct {
	mutex        sync.Mutex
	gets, pushes map[uint16]int
}

func newCounts() *counts { return &counts{gets: map[uint16]int{}, pushes: map[uint16]int{}} }

func (c *counts) count(codes map[uint16]int, answer []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	codes[errorCode(answer)]++
}

func (p *pusher) open(clients int) error {
	for i := 0; i < clients; i++ {
		connection, err := greeted(p.target, "innocent")
		if err != nil {
			return err
		}
		p.held = append(p.held, connection)
	}
	return nil
}

func (p *pusher) run(until time.Time) {
	var group sync.WaitGroup
	for i, connection := range p.held {
		group.Add(1)
		go func(i int, connection net.Conn) {
			defer group.Done()
			if err := p.client(connection, until); err != nil {
				p.failed(err)
			}
		}(i, connection)
	}
	group.Wait()
}

func (p *pusher) failed(err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.problem = "telemetry: " + err.Error()
}

// client gets its subscription once, then pushes at the interval.
func (p *pusher) client(connection net.Conn, until time.Time) error {
	var got subscription
	for got.interval == 0 {
		answer, err := p.asked(connection, getRequest(2, [16]byte{}), p.gets, time.Now())
		if err != nil {
			return err
		}
		if got, err = parseSubscription(answer); err != nil {
			return nil // the fake broker behind a proxy sends filler
		}
		if got.code != 0 {
			got.interval = 0
			time.Sleep(100 * time.Millisecond)
			if time.Now().After(until) {
				return nil
			}
		}
	}
	interval := got.interval + time.Millisecond // the receiver's clock started when it answered, before now
	if interval > longestInterval {
		return fmt.Errorf("the push interval is %v; a subscription of 100 ms is expected", interval)
	}
	for due := time.Now().Add(interval); due.Before(until); {
		time.Sleep(time.Until(due))
		if _, err := p.asked(connection, pushRequest(3, got.instance, got.id, p.codec, p.payload), p.pushes, due); err != nil {
			return err
		}
		due = time.Now().Add(interval)
	}
	return nil
}

// asked times a request from its due time, and counts its answer by error code.
func (p *pusher) asked(connection net.Conn, request []byte, codes map[uint16]int, due time.Time) ([]byte, error) {
	answer, err := exchangeWithin(connection, request, nil, answeredWithin)
	p.mutex.Lock()
	p.latencies = append(p.latencies, time.Since(due))
	p.mutex.Unlock()
	if err == nil {
		p.count(codes, answer)
	}
	return answer, err
}
