package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	softwareName    = "load"
	softwareVersion = "1.0"
	// A busy machine answers late.
	patience = 300 * time.Second
)

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

// exchange sends a request and returns its response without the length; it uses buffer if the response fits.
func exchange(connection net.Conn, request, buffer []byte) ([]byte, error) {
	return exchangeWithin(connection, request, buffer, patience)
}

// exchangeWithin does the same with another time limit.
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
