package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

const (
	// Larger filler is sent from the one shared block, smaller is gathered so that many answers leave in one write.
	gatherBelow = 16 << 10
	readBuffer  = 1 << 20
	vectors     = 64
	lastKey     = 92 // of Kafka 4.4
)

type broker struct {
	host     string
	port     int
	filler   []byte
	answer   int
	epoll    int
	open     map[int32]*peer
	buffer   []byte
	iovecs   [vectors]syscall.Iovec
	listener int
	file     *os.File // owns the listener
}

// peer is one accepted connection. out has the parts to write, in order; gathered has the bytes of small parts.
type peer struct {
	fd       int
	frames   scanner
	out      [][]byte
	gathered []byte
	from     int
	waiting  bool
}

func server(flags *flag.FlagSet, arguments []string) error {
	listen := flags.String("listen", "127.0.0.1:9092", "host:port to listen on")
	answer := flags.Int("response-bytes", 100, "size of an answer with its length, unless the client id says answer=NNNNNNNN")
	_ = flags.Parse(arguments)
	address, err := net.ResolveTCPAddr("tcp4", *listen)
	if err != nil {
		return err
	}
	b := &broker{host: address.IP.String(), port: address.Port, answer: *answer, filler: make([]byte, 4<<20),
		open: map[int32]*peer{}, buffer: make([]byte, readBuffer)}
	if err := b.listen(address); err != nil {
		return fmt.Errorf("--listen %s: %w", *listen, err)
	}
	fmt.Fprintf(os.Stderr, "listening on %s\n", *listen)
	runtime.LockOSThread()
	return b.serve()
}

func (b *broker) listen(address *net.TCPAddr) error {
	listener, err := net.ListenTCP("tcp4", address)
	if err != nil {
		return err
	}
	if b.file, err = listener.File(); err != nil {
		return err
	}
	b.listener = int(b.file.Fd())
	if err = syscall.SetNonblock(b.listener, true); err != nil {
		return err
	}
	if b.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return err
	}
	return syscall.EpollCtl(b.epoll, syscall.EPOLL_CTL_ADD, b.listener, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(b.listener)})
}

func (b *broker) serve() error {
	events := make([]syscall.EpollEvent, 256)
	for {
		count, err := syscall.EpollWait(b.epoll, events, -1)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, event := range events[:count] {
			if int(event.Fd) == b.listener {
				b.accept()
				continue
			}
			p := b.open[event.Fd]
			if p == nil {
				continue
			}
			err := b.flush(p)
			if err == nil && event.Events&(syscall.EPOLLIN|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
				err = b.read(p)
			}
			if err != nil {
				if err != errEnd {
					fmt.Fprintf(os.Stderr, "a connection is closed: %v\n", err)
				}
				delete(b.open, event.Fd)
				syscall.Close(p.fd)
			}
		}
	}
}

var errEnd = fmt.Errorf("end of stream")

func (b *broker) accept() {
	for {
		fd, _, err := syscall.Accept4(b.listener, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err != nil {
			if err != syscall.EAGAIN && err != syscall.EINTR {
				fmt.Fprintf(os.Stderr, "accept: %v\n", err)
			}
			return
		}
		_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
		b.open[int32(fd)] = &peer{fd: fd, frames: scanner{want: requestPrefix}}
		if err := syscall.EpollCtl(b.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}); err != nil {
			fmt.Fprintf(os.Stderr, "epoll: %v\n", err)
		}
	}
}

func (b *broker) read(p *peer) error {
	count, err := syscall.Read(p.fd, b.buffer)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return nil
	}
	if err == syscall.ECONNRESET || (err == nil && count == 0) {
		return errEnd
	}
	if err != nil {
		return err
	}
	if err := p.frames.feed(b.buffer[:count], func(prefix []byte, _ int) error { return b.respond(p, prefix) }); err != nil {
		return err
	}
	return b.flush(p)
}

func (b *broker) respond(p *peer, prefix []byte) error {
	if len(prefix) < 8 {
		return fmt.Errorf("a request of %d bytes has no header", len(prefix))
	}
	key, version := binary.BigEndian.Uint16(prefix), binary.BigEndian.Uint16(prefix[2:])
	correlation := binary.BigEndian.Uint32(prefix[4:])
	switch {
	case key > lastKey: // as a Kafka broker does
		return fmt.Errorf("API key %d is unknown", key)
	case key == 18:
		p.gathered = append(p.gathered, apiVersionsAnswer(version, correlation)...)
		return nil
	case key == 3 && (version == 1 || version == 2):
		p.gathered = append(p.gathered, metadataAnswer(version, correlation, b.host, b.port)...)
		return nil
	case key == findCoordinator && version >= 4 && len(prefix) > coordinatorKeysAt:
		p.gathered = append(p.gathered, coordinatorsAnswer(prefix, correlation)...)
		return nil
	}
	size := wantedAnswer(prefix, b.answer)
	if size < 8 || size-8 > len(b.filler) {
		return fmt.Errorf("an answer of %d bytes was asked for; 8 to %d can be had", size, len(b.filler)+8)
	}
	if key == 1 && version == fetchVersion {
		return b.fetched(p, size, correlation)
	}
	p.gathered = binary.BigEndian.AppendUint32(p.gathered, uint32(size-4))
	p.gathered = binary.BigEndian.AppendUint32(p.gathered, correlation)
	if size < gatherBelow {
		p.gathered = append(p.gathered, b.filler[:size-8]...)
		return nil
	}
	p.seal()
	p.out = append(p.out, b.filler[:size-8])
	return nil
}

// fetched answers a Fetch request.
func (b *broker) fetched(p *peer, size int, correlation uint32) error {
	before, records, after, err := fetchAnswer(size, correlation)
	if err != nil {
		return err
	}
	p.gathered = append(p.gathered, before...)
	if size < gatherBelow {
		p.gathered = append(p.gathered, b.filler[:records]...)
	} else {
		p.seal()
		p.out = append(p.out, b.filler[:records])
	}
	p.gathered = append(p.gathered, after...)
	return nil
}

// seal makes the small answers since the last call one part to write.
func (p *peer) seal() {
	if len(p.gathered) > p.from {
		p.out = append(p.out, p.gathered[p.from:])
		p.from = len(p.gathered)
	}
}

// flush writes as much as the socket takes, and waits for room for the rest.
func (b *broker) flush(p *peer) error {
	p.seal()
	for len(p.out) > 0 {
		count := min(len(p.out), vectors)
		for i, part := range p.out[:count] {
			b.iovecs[i] = syscall.Iovec{Base: &part[0], Len: uint64(len(part))}
		}
		n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, uintptr(p.fd), uintptr(unsafe.Pointer(&b.iovecs[0])), uintptr(count))
		if errno == syscall.EAGAIN {
			return b.await(p, true)
		}
		if errno == syscall.EPIPE || errno == syscall.ECONNRESET {
			return errEnd
		}
		if errno != 0 && errno != syscall.EINTR {
			return errno
		}
		if errno == 0 {
			p.written(int(n))
		}
	}
	p.out, p.gathered, p.from = p.out[:0], p.gathered[:0], 0
	return b.await(p, false)
}

func (p *peer) written(count int) {
	done := 0
	for ; done < len(p.out) && count >= len(p.out[done]); done++ {
		count -= len(p.out[done])
	}
	p.out = p.out[done:]
	if count > 0 {
		p.out[0] = p.out[0][count:]
	}
}

func (b *broker) await(p *peer, room bool) error {
	if p.waiting == room {
		return nil
	}
	p.waiting = room
	events := uint32(syscall.EPOLLIN)
	if room {
		events |= syscall.EPOLLOUT
	}
	return syscall.EpollCtl(b.epoll, syscall.EPOLL_CTL_MOD, p.fd, &syscall.EpollEvent{Events: events, Fd: int32(p.fd)})
}

// supported has the fake broker's APIs: key, lowest and highest version.
var supported = [][3]uint16{{0, 0, 11}, {1, 0, 16}, {2, 1, 11}, {3, 1, 2}, {17, 0, 1}, {10, 0, 6}, {18, 0, 3}, {36, 0, 2}, {44, 0, 1}}

const unsupportedVersion = 35

// apiVersionsAnswer returns a whole ApiVersions response. Its header is v0 in every version. An unsupported version
// gets a v0 body (KIP-511).
func apiVersionsAnswer(version uint16, correlation uint32) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4, 128), correlation)
	keys, code := supported, uint16(0)
	if version > 3 {
		keys, code, version = [][3]uint16{{18, 0, 3}}, unsupportedVersion, 0
	}
	frame = binary.BigEndian.AppendUint16(frame, code)
	if version >= 3 {
		frame = append(frame, byte(len(keys)+1))
	} else {
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(keys)))
	}
	for _, key := range keys {
		for _, part := range key {
			frame = binary.BigEndian.AppendUint16(frame, part)
		}
		if version >= 3 {
			frame = append(frame, 0)
		}
	}
	if version >= 1 {
		frame = binary.BigEndian.AppendUint32(frame, 0)
	}
	if version >= 3 {
		frame = append(frame, 0)
	}
	return sealed(frame)
}

// coordinatorKeysAt is the offset of the keys in a FindCoordinator request v4 with an empty client id.
const coordinatorKeysAt = 12

// coordinatorsAnswer returns a whole FindCoordinator response, v4 or later: the same coordinator for each key.
func coordinatorsAnswer(prefix []byte, correlation uint32) []byte {
	keys, _ := binary.Uvarint(prefix[coordinatorKeysAt:])
	frame := binary.BigEndian.AppendUint32(make([]byte, 4, 128), correlation)
	frame = binary.AppendUvarint(append(frame, 0, 0, 0, 0, 0), keys)
	// An empty key, broker 1 at "b":9, no error, no message and no tagged fields.
	one := []byte{1, 0, 0, 0, 1, 2, 'b', 0, 0, 0, 9, 0, 0, 0, 0}
	if keys > 1 {
		frame = append(frame, bytes.Repeat(one, int(keys-1))...)
	}
	return sealed(append(frame, 0))
}

// metadataAnswer returns a whole Metadata response, v1 or v2: one broker, cluster "bench", no topics.
func metadataAnswer(version uint16, correlation uint32, host string, port int) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4, 128), correlation)
	text := func(value string) {
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(value)))
		frame = append(frame, value...)
	}
	frame = append(frame, 0, 0, 0, 1, 0, 0, 0, 1) // one broker, with the id 1
	text(host)
	frame = binary.BigEndian.AppendUint32(frame, uint32(port))
	frame = append(frame, 0xff, 0xff) // rack: null
	if version >= 2 {
		text("bench")
	}
	return sealed(append(frame, 0, 0, 0, 1, 0, 0, 0, 0)) // controller 1, no topics
}
