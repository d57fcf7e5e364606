package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	softwareName    = "load"
	softwareVersion = "1.0"
	dialers         = 32
	patience        = 20 * time.Second
)

// idle prints one line when every connection has had its answer, and one at the end with how many were closed by the
// other side.
func idle(flags *flag.FlagSet, arguments []string) error {
	target := flags.String("target", "", "host:port to connect to")
	count := flags.Int("connections", 5000, "connections to hold")
	seconds := flags.Float64("seconds", 10, "how long to hold them")
	_ = flags.Parse(arguments)
	held := make([]net.Conn, *count)
	started := time.Now()
	if err := each(*count, func(i int) (err error) {
		held[i], err = greeted(*target, fmt.Sprintf("idle-%d", i))
		return err
	}); err != nil {
		return err
	}
	if err := report(map[string]any{"connected": *count, "seconds": time.Since(started).Seconds()}); err != nil {
		return err
	}
	time.Sleep(time.Duration(*seconds * float64(time.Second)))
	closed := 0
	for _, connection := range held {
		_ = connection.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
		if _, err := connection.Read(make([]byte, 1)); err != nil {
			if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
				closed++
			}
		}
	}
	return report(map[string]any{"held": *count - closed, "closed": closed})
}

// each calls do for 0 to count-1 from a few goroutines, and returns the first error.
func each(count int, do func(i int) error) error {
	var group sync.WaitGroup
	numbers, failed := make(chan int), make(chan error, dialers)
	for range [dialers]struct{}{} {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range numbers {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	var err error
	for i := 0; i < count && err == nil; i++ {
		select {
		case numbers <- i:
		case err = <-failed:
		}
	}
	close(numbers)
	group.Wait()
	select {
	case err = <-failed:
	default:
	}
	return err
}

// greeted connects, sends ApiVersions v3 and reads its answer.
func greeted(target, clientID string) (net.Conn, error) {
	connection, err := net.DialTimeout("tcp4", target, patience)
	if err != nil {
		return nil, err
	}
	answer, err := exchange(connection, apiVersionsRequest(1, clientID, softwareName, softwareVersion), nil)
	if err != nil {
		return nil, fmt.Errorf("ApiVersions: %w", err)
	}
	if code := binary.BigEndian.Uint16(answer[4:]); code != 0 {
		return nil, fmt.Errorf("ApiVersions is answered with error code %d", code)
	}
	return connection, nil
}

// exchange sends a request and returns its response without the length, in buffer when it fits.
func exchange(connection net.Conn, request, buffer []byte) ([]byte, error) {
	return exchangeWithin(connection, request, buffer, patience)
}

// exchangeWithin does the same within another time.
func exchangeWithin(connection net.Conn, request, buffer []byte, within time.Duration) ([]byte, error) {
	_ = connection.SetDeadline(time.Now().Add(within))
	if _, err := connection.Write(request); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(length[:])))
	if size < 6 || size > maxFrame {
		return nil, fmt.Errorf("a response announces %d bytes", size)
	}
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	if _, err := io.ReadFull(connection, buffer); err != nil {
		return nil, err
	}
	if sent, got := binary.BigEndian.Uint32(request[correlationAt:]), binary.BigEndian.Uint32(buffer); sent != got {
		return nil, fmt.Errorf("correlation id %d answered, %d expected", got, sent)
	}
	return buffer, nil
}
