package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	throttlingQuotaExceeded = 89
	longestInterval         = 2 * time.Second
)

var codecNumbers = map[string]byte{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

// pairs is shared by the connections: their progress, and the times of the measured pairs.
type pairs struct {
	mutex         sync.Mutex
	done          int
	warmup, count int
	started       time.Time
	times         []time.Duration
	begin         func() error
	ended         chan error
	payload       []byte
	codec         byte
	fresh         bool
}

func push(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	file := flags.String("payload", "", "file with the Metrics field's bytes, compressed already")
	codec := flags.String("codec", "none", "what they are compressed with: none, gzip, snappy, lz4, zstd")
	connections := flags.Int("connections", 500, "connections, each a client instance of its own")
	count := flags.Int("count", 10000, "pairs of a get and a push to measure, over all connections")
	warmup := flags.Int("warmup", 1000, "pairs before those")
	fresh := flags.Bool("fresh", false, "a new client instance for every pair, and no pause for the push interval")
	hold := flags.Float64("hold", 0, "seconds for which the connections stay open, and silent, after the report")
	cpu := flags.String("cpu-of", "", "process ids, comma separated, whose CPU time over the measured pairs is reported for each")
	_ = flags.Parse(arguments)
	number, known := codecNumbers[*codec]
	if !known || *count < 1 || *connections < 1 {
		return fmt.Errorf("--codec is none, gzip, snappy, lz4 or zstd; --count and --connections 1 or more")
	}
	payload, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("--payload: %w", err)
	}
	watched, err := pids(*cpu)
	if err != nil {
		return err
	}
	open := make([]net.Conn, *connections)
	for i := range open {
		if open[i], err = greeted(*target, fmt.Sprintf("push-%d", i)); err != nil {
			return fmt.Errorf("--target %s: %w", *target, err)
		}
	}
	var before map[int]float64
	p := &pairs{warmup: *warmup, count: *count, payload: payload, codec: number, fresh: *fresh,
		ended: make(chan error, *connections+1), times: make([]time.Duration, 0, *count)}
	p.begin = func() (err error) {
		before, err = cpuSeconds(watched)
		p.started = time.Now()
		return err
	}
	if *warmup == 0 {
		if err := p.begin(); err != nil {
			return err
		}
	}
	for i, connection := range open {
		go func(i int, connection net.Conn) {
			if err := p.client(connection, i, *connections); err != nil {
				p.ended <- err
			}
		}(i, connection)
	}
	if err := <-p.ended; err != nil {
		return err
	}
	wall := time.Since(p.started).Seconds()
	used, err := cpuSince(before)
	if err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := report(timing{Requests: *count, WallSeconds: wall, CPUSeconds: used, latencies: percentiles(p.times)}); err != nil {
		return err
	}
	time.Sleep(time.Duration(*hold * float64(time.Second)))
	runtime.KeepAlive(open) // the collector would close those whose client has ended
	return nil
}

// client pairs a get with a push until the shared count is reached. The clients begin spread over the push interval,
// which the get returns.
func (p *pairs) client(connection net.Conn, index, of int) error {
	var instance [16]byte
	var buffer []byte
	correlation := uint32(2)
	for turn := 0; ; turn++ {
		if p.fresh {
			instance = [16]byte{}
		}
		began := time.Now()
		answer, err := exchange(connection, getRequest(correlation, instance), buffer)
		if err != nil {
			return fmt.Errorf("GetTelemetrySubscriptions: %w", err)
		}
		buffer = answer
		subscription, err := parseSubscription(answer)
		if err != nil {
			return err
		}
		if subscription.code == throttlingQuotaExceeded {
			time.Sleep(100 * time.Millisecond)
			correlation++
			continue
		}
		if subscription.code != 0 {
			return fmt.Errorf("GetTelemetrySubscriptions is answered with error code %d", subscription.code)
		}
		if subscription.interval > longestInterval && !p.fresh {
			return fmt.Errorf("the push interval is %v, which is too long to measure with; use a subscription of 100 ms, or --fresh", subscription.interval)
		}
		if instance == [16]byte{} {
			instance = subscription.instance
		}
		if turn == 0 && !p.fresh { // the first pair is spread over the interval
			time.Sleep(subscription.interval * time.Duration(index) / time.Duration(of))
			began = time.Now()
		}
		answer, err = exchange(connection, pushRequest(correlation+1, instance, subscription.id, p.codec, p.payload), buffer)
		if err != nil {
			return fmt.Errorf("PushTelemetry: %w", err)
		}
		if code := errorCode(answer); code != 0 {
			return fmt.Errorf("PushTelemetry is answered with error code %d", code)
		}
		if p.pair(time.Since(began)) {
			return nil
		}
		correlation += 2
		if !p.fresh {
			// The broker's clock started when it answered, which was before now.
			time.Sleep(subscription.interval + time.Millisecond)
		}
	}
}

// pair counts one finished pair, and begins or ends the measurement. It reports whether all are done.
func (p *pairs) pair(took time.Duration) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.done++
	switch {
	case p.done == p.warmup:
		if err := p.begin(); err != nil {
			p.ended <- err
		}
	case p.done > p.warmup && p.done <= p.warmup+p.count:
		p.times = append(p.times, took)
		if p.done == p.warmup+p.count {
			p.ended <- nil
		}
	}
	return p.done >= p.warmup+p.count
}

// errorCode reads the error code of a get's or a push's response, 0xffff if it is too short.
func errorCode(answer []byte) uint16 {
	if len(answer) < 11 {
		return 0xffff
	}
	return binary.BigEndian.Uint16(answer[9:])
}

// getRequest returns a whole GetTelemetrySubscriptions v0 frame.
func getRequest(correlation uint32, instance [16]byte) []byte {
	return sealed(append(append(requestHeader(71, 0, correlation, "load"), instance[:]...), 0))
}

// pushRequest returns a whole PushTelemetry v0 frame that is not terminating.
func pushRequest(correlation uint32, instance [16]byte, subscription uint32, codec byte, metrics []byte) []byte {
	frame := append(requestHeader(72, 0, correlation, "load"), instance[:]...)
	frame = binary.BigEndian.AppendUint32(frame, subscription)
	frame = append(frame, 0, codec)
	frame = binary.AppendUvarint(frame, uint64(len(metrics)+1))
	return sealed(append(append(frame, metrics...), 0))
}

type subscription struct {
	code     uint16
	instance [16]byte
	id       uint32
	interval time.Duration
}

// parseSubscription reads a GetTelemetrySubscriptions v0 response, header v1, up to the push interval.
func parseSubscription(answer []byte) (s subscription, err error) {
	const fixed = 4 + 1 + 4 + 2 + 16 + 4 + 1
	if len(answer) < fixed {
		return s, fmt.Errorf("a GetTelemetrySubscriptions response of %d bytes; %d or more expected", len(answer), fixed)
	}
	s.code = binary.BigEndian.Uint16(answer[9:])
	copy(s.instance[:], answer[11:27])
	s.id = binary.BigEndian.Uint32(answer[27:])
	codecs := int(answer[31])
	if codecs < 1 || codecs > 6 || len(answer) < 32+codecs-1+4 {
		return s, fmt.Errorf("a GetTelemetrySubscriptions response with %d accepted codecs in %d bytes", codecs-1, len(answer))
	}
	s.interval = time.Duration(binary.BigEndian.Uint32(answer[32+codecs-1:])) * time.Millisecond
	return s, nil
}
