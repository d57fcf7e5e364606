package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// The client id of a timing client has the size of the answer, so that one broker serves every measurement and no
// proxy has to be restarted between two of them.
const (
	answerPrefix = "answer="
	answerDigits = 8
	clientIDSize = len(answerPrefix) + answerDigits
	// requestPrefix is the part that the broker reads: API key, version, correlation id, client id with its length.
	requestPrefix = 2 + 2 + 4 + 2 + clientIDSize
	maxFrame      = 128 << 20
)

// scanner finds the frames in a stream of chunks and shows the first bytes of each. It skips the rest uncopied.
type scanner struct {
	want int // bytes of each frame to show, after its length; a shorter frame is shown whole
	head [4 + requestPrefix]byte
	have int
	skip int
}

// feed calls found once for each frame that the chunk completes, with the length that the frame announces.
func (s *scanner) feed(chunk []byte, found func(prefix []byte, length int) error) error {
	for {
		if s.skip > 0 {
			if len(chunk) < s.skip {
				s.skip -= len(chunk)
				return nil
			}
			chunk = chunk[s.skip:]
			s.skip = 0
			if err := s.complete(found); err != nil {
				return err
			}
		}
		if len(chunk) == 0 {
			return nil
		}
		for s.have < 4 {
			if len(chunk) == 0 {
				return nil
			}
			s.head[s.have] = chunk[0]
			s.have++
			chunk = chunk[1:]
		}
		length := int(int32(binary.BigEndian.Uint32(s.head[:])))
		if length < 4 || length > maxFrame {
			return fmt.Errorf("a frame announces %d bytes; 4 to %d expected", length, maxFrame)
		}
		want := 4 + min(length, s.want)
		taken := copy(s.head[s.have:want], chunk)
		s.have += taken
		chunk = chunk[taken:]
		if s.have < want {
			return nil
		}
		s.skip = 4 + length - want
		if s.skip == 0 {
			if err := s.complete(found); err != nil {
				return err
			}
		}
	}
}

func (s *scanner) complete(found func(prefix []byte, length int) error) error {
	length := int(binary.BigEndian.Uint32(s.head[:]))
	prefix := s.head[4:s.have]
	s.have = 0
	return found(prefix, length)
}

// wantedAnswer reads the answer's size from a request's client id; any other client id gets otherwise.
func wantedAnswer(prefix []byte, otherwise int) int {
	if len(prefix) < requestPrefix || binary.BigEndian.Uint16(prefix[8:]) != uint16(clientIDSize) ||
		string(prefix[10:10+len(answerPrefix)]) != answerPrefix {
		return otherwise
	}
	size, err := strconv.Atoi(string(prefix[10+len(answerPrefix) : requestPrefix]))
	if err != nil {
		return otherwise
	}
	return size
}

// produceRequest returns a Produce v9 request with acks=-1 and one record batch of filler, exactly size bytes long
// with its four length bytes. The sender writes the correlation id at correlationAt.
func produceRequest(size, answer int) ([]byte, error) {
	start := requestHeader(0, 9, 0, fmt.Sprintf("%s%0*d", answerPrefix, answerDigits, answer))
	start = append(start, 0)          // transactional id: null
	start = append(start, 0xff, 0xff) // acks: all
	start = binary.BigEndian.AppendUint32(start, 30000)
	start = append(start, 2, 6) // one topic, its name of five bytes
	start = append(start, "bench"...)
	start = append(start, 2, 0, 0, 0, 0) // one partition, number 0
	end := []byte{0, 0, 0}               // tagged fields of the partition, the topic and the request
	// Some sizes need a length that is written one byte wider than necessary.
	for width := 1; width <= 4; width++ {
		records := size - len(start) - width - len(end)
		if records < 0 {
			continue
		}
		if length := binary.AppendUvarint(nil, uint64(records+1)); len(length) <= width {
			for len(length) < width { // a varint allows the same number in a wider form
				length[len(length)-1] |= 0x80
				length = append(length, 0)
			}
			frame := append(start, length...)
			for i := 0; i < records; i++ {
				frame = append(frame, byte(i*131>>3))
			}
			frame = append(frame, end...)
			binary.BigEndian.PutUint32(frame, uint32(size-4))
			return frame, nil
		}
	}
	return nil, fmt.Errorf("--frame-bytes %d is too small for a Produce request; use %d or more", size, len(start)+len(end)+1)
}

// fetchRequest returns a request with the header of Fetch v16, exactly size bytes long with its four length bytes. Its
// body is filler, because only a real broker would read it.
func fetchRequest(size, answer int) ([]byte, error) {
	frame := requestHeader(1, fetchVersion, 0, fmt.Sprintf("%s%0*d", answerPrefix, answerDigits, answer))
	if size < len(frame) {
		return nil, fmt.Errorf("--frame-bytes %d is too small for a Fetch request; use %d or more", size, len(frame))
	}
	return sealed(append(frame, make([]byte, size-len(frame))...)), nil
}

// fetchVersion is the first whose responses name leaders that have moved (KIP-951).
const fetchVersion = 16

// fetchAnswer returns a Fetch v16 response of size bytes, with its four length bytes, in three parts: what comes before
// the records of its one partition, the size of the records, and what comes after them. No leader has moved.
func fetchAnswer(size int, correlation uint32) (before []byte, records int, after []byte, err error) {
	before = binary.BigEndian.AppendUint32(make([]byte, 0, 128), uint32(size-4))
	before = binary.BigEndian.AppendUint32(before, correlation)
	before = append(before, make([]byte, 1+4+2+4)...) // tagged fields; throttle time, error code, session id
	before = append(before, 2)                        // one topic
	before = append(before, make([]byte, 16)...)      // its id
	before = append(before, 2)                        // one partition
	before = append(before, make([]byte, 4+2+8+8+8)...)
	before = append(before, 0, 0xff, 0xff, 0xff, 0xff) // no aborted transactions, no preferred replica
	after = []byte{0, 0, 0}                            // tagged fields of the partition, the topic and the response
	for width := 1; width <= 4; width++ {
		records = size - len(before) - width - len(after)
		if records < 0 {
			continue
		}
		if length := binary.AppendUvarint(nil, uint64(records+1)); len(length) <= width {
			for len(length) < width { // a varint allows the same number in a wider form
				length[len(length)-1] |= 0x80
				length = append(length, 0)
			}
			return append(before, length...), records, after, nil
		}
	}
	return nil, 0, nil, fmt.Errorf("a Fetch response of %d bytes was asked for; %d or more can be had", size, len(before)+1+len(after))
}

// correlationAt is the offset of the correlation id in a whole request frame.
const correlationAt = 8

// requestHeader starts a frame: four bytes for the length, then a request header v2 without tagged fields.
func requestHeader(key, version int16, correlation uint32, clientID string) []byte {
	frame := make([]byte, 4, 128)
	frame = binary.BigEndian.AppendUint16(frame, uint16(key))
	frame = binary.BigEndian.AppendUint16(frame, uint16(version))
	frame = binary.BigEndian.AppendUint32(frame, correlation)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(clientID)))
	frame = append(frame, clientID...)
	return append(frame, 0)
}

// sealed writes the frame's length into its first four bytes.
func sealed(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// apiVersionsRequest returns the first request of a client with KIP-511 (version 3).
func apiVersionsRequest(correlation uint32, clientID, name, version string) []byte {
	frame := requestHeader(18, 3, correlation, clientID)
	frame = appendCompact(frame, name)
	frame = appendCompact(frame, version)
	return sealed(append(frame, 0))
}

func appendCompact(frame []byte, text string) []byte {
	return append(binary.AppendUvarint(frame, uint64(len(text)+1)), text...)
}
