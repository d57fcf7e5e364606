package main

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
)

// TLS content types (RFC 8446, section 5.1).
const (
	recordAlert       = 21
	recordHandshake   = 22
	recordApplication = 23
)

// records writes TLS records of any type and size, which no TLS library allows, after a handshake by crypto/tls.
// Nothing else may then write to the connection.
type records struct {
	net.Conn
	version uint16
	hash    crypto.Hash
	keySize int
	secret  []byte // TLS 1.3: the client's application traffic secret
	aead    cipher.AEAD
	iv      []byte // TLS 1.3: 12 bytes; TLS 1.2: the 4 that are not on the wire
	number  uint64
	out     []byte
}

// keyLog collects the secrets that crypto/tls writes in the NSS key log format.
type keyLog struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (k *keyLog) Write(data []byte) (int, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.text.Write(data)
}

// secret returns the client random and the secret of a label.
func (k *keyLog) secret(label string) (random, secret []byte, err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, line := range strings.Split(k.text.String(), "\n") {
		if parts := strings.Fields(line); len(parts) == 3 && parts[0] == label {
			if random, err = hex.DecodeString(parts[1]); err == nil {
				secret, err = hex.DecodeString(parts[2])
			}
			return random, secret, err
		}
	}
	return nil, nil, fmt.Errorf("no %s in the key log", label)
}

// listening keeps the first bytes that a connection reads, which have the random of the ServerHello.
type listening struct {
	net.Conn
	heard []byte
}

func (l *listening) Read(data []byte) (int, error) {
	n, err := l.Conn.Read(data)
	if room := 256 - len(l.heard); room > 0 {
		l.heard = append(l.heard, data[:min(n, room)]...)
	}
	return n, err
}

// handshaken does the handshake of TLS 1.2 or 1.3 with AES-GCM.
func handshaken(connection net.Conn, version uint16) (*records, error) {
	log := &keyLog{}
	heard := &listening{Conn: connection}
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, KeyLogWriter: log,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}
	secured := tls.Client(heard, config)
	if err := secured.Handshake(); err != nil {
		return nil, err
	}
	r := &records{Conn: connection, version: version, hash: crypto.SHA256, keySize: 16}
	if version == tls.VersionTLS12 {
		return r, r.keyed12(log, heard.heard)
	}
	switch suite := secured.ConnectionState().CipherSuite; suite {
	case tls.TLS_AES_128_GCM_SHA256:
	case tls.TLS_AES_256_GCM_SHA384:
		r.hash, r.keySize = crypto.SHA384, 32
	default:
		return nil, fmt.Errorf("the target chose %s; AES-GCM is expected", tls.CipherSuiteName(suite))
	}
	_, secret, err := log.secret("CLIENT_TRAFFIC_SECRET_0")
	if err != nil {
		return nil, err
	}
	return r, r.keyed13(secret)
}

// keyed13 derives key and IV from a traffic secret (RFC 8446, section 7.3).
func (r *records) keyed13(secret []byte) (err error) {
	r.secret, r.number = secret, 0
	r.iv = r.expanded("iv", 12)
	r.aead, err = gcm(r.expanded("key", r.keySize))
	return err
}

// keyed12 derives them from the master secret (RFC 5246, section 6.3, and RFC 5288); Finished was record 0.
func (r *records) keyed12(log *keyLog, heard []byte) error {
	const randomAt = 5 + 4 + 2 // record header, handshake header, version
	random, master, err := log.secret("CLIENT_RANDOM")
	if err != nil {
		return err
	}
	if len(heard) < randomAt+32 || heard[5] != 2 {
		return fmt.Errorf("the target's first record has no ServerHello")
	}
	seed := append(append([]byte("key expansion"), heard[randomAt:randomAt+32]...), random...)
	var block []byte
	for a := seed; len(block) < 2*r.keySize+8; {
		a = mac(r.hash, master, a)
		block = append(block, mac(r.hash, master, append(append([]byte{}, a...), seed...))...)
	}
	r.iv, r.number = block[2*r.keySize:2*r.keySize+4], 1
	r.aead, err = gcm(block[:r.keySize])
	return err
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func mac(hash crypto.Hash, key, data []byte) []byte {
	h := hmac.New(hash.New, key)
	h.Write(data)
	return h.Sum(nil)
}

// expanded is HKDF-Expand-Label without a context, for no more than one block of the hash (RFC 8446, section 7.1).
func (r *records) expanded(label string, size int) []byte {
	info := []byte{byte(size >> 8), byte(size), byte(len("tls13 " + label))}
	info = append(append(info, "tls13 "+label...), 0, 1)
	return mac(r.hash, r.secret, info)[:size]
}

// add appends a record to those that have not been sent.
func (r *records) add(kind byte, body []byte) {
	if r.version == tls.VersionTLS12 {
		var nonce [12]byte
		copy(nonce[:], r.iv)
		binary.BigEndian.PutUint64(nonce[4:], r.number)
		extra := append(nonce[4:12:12], kind, 3, 3, byte(len(body)>>8), byte(len(body)))
		r.number++
		size := 8 + len(body) + r.aead.Overhead()
		r.out = append(r.out, kind, 3, 3, byte(size>>8), byte(size))
		r.out = append(r.out, nonce[4:]...)
		r.out = r.aead.Seal(r.out, nonce[:], body, extra)
		return
	}
	var nonce [12]byte
	copy(nonce[:], r.iv)
	for i := 0; i < 8; i++ {
		nonce[4+i] ^= byte(r.number >> (56 - 8*i))
	}
	r.number++
	size := len(body) + 1 + r.aead.Overhead()
	start := len(r.out)
	r.out = append(r.out, recordApplication, 3, 3, byte(size>>8), byte(size))
	r.out = r.aead.Seal(r.out, nonce[:], append(body[:len(body):len(body)], kind), r.out[start:start+5])
}

// update adds a KeyUpdate, and continues with the next secret (RFC 8446, sections 4.6.3 and 7.2).
func (r *records) update(requested bool) error {
	body := []byte{24, 0, 0, 1, 0}
	if requested {
		body[4] = 1
	}
	r.add(recordHandshake, body)
	return r.keyed13(r.expanded("traffic upd", r.hash.Size()))
}

// flush sends the records.
func (r *records) flush() error {
	_, err := r.Conn.Write(r.out)
	r.out = r.out[:0]
	return err
}
