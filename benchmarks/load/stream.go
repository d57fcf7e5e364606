package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// blocking is a connected socket with its own thread, which wakes faster than Go's poller.
type blocking int

func (b blocking) Read(data []byte) (int, error) {
	for {
		n, err := syscall.Read(int(b), data)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 && len(data) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

func (b blocking) Write(data []byte) (int, error) {
	for sent := 0; ; {
		n, err := syscall.Write(int(b), data[sent:])
		if err != nil && err != syscall.EINTR {
			return sent, err
		}
		if err == nil {
			sent += n
		}
		if sent == len(data) {
			return sent, nil
		}
	}
}

// The other methods of net.Conn, which crypto/tls needs. The socket has its own timeouts.
func (b blocking) Close() error                     { return syscall.Close(int(b)) }
func (b blocking) LocalAddr() net.Addr              { return nil }
func (b blocking) RemoteAddr() net.Addr             { return nil }
func (b blocking) SetDeadline(time.Time) error      { return nil }
func (b blocking) SetReadDeadline(time.Time) error  { return nil }
func (b blocking) SetWriteDeadline(time.Time) error { return nil }

// encrypt does the handshake of each connection, and returns the version and cipher of the last one.
func encrypt(all []*timed, target, ca string) (string, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return "", err
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("no certificate in it")
	}
	config := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
	agreed := ""
	for _, c := range all {
		secured := tls.Client(c.stream.(blocking), config)
		if err := secured.Handshake(); err != nil {
			return "", err
		}
		state := secured.ConnectionState()
		agreed = tls.VersionName(state.Version) + " " + tls.CipherSuiteName(state.CipherSuite)
		c.stream = secured
	}
	return agreed, nil
}
