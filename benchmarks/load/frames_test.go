package main

import (
	"encoding/binary"
	"fmt"
	"testing"
)

func TestProduceRequestHasExactlyTheSizeAskedFor(t *testing.T) {
	for size := 80; size < 40000; size++ {
		frame, err := produceRequest(size, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(frame) != size || int(binary.BigEndian.Uint32(frame))+4 != size {
			t.Fatalf("size %d: frame of %d bytes announces %d", size, len(frame), binary.BigEndian.Uint32(frame))
		}
		if got := wantedAnswer(frame[4:4+requestPrefix], -1); got != 100 {
			t.Fatalf("size %d: the client id asks for %d", size, got)
		}
	}
}

func TestScannerFindsTheSameFramesHoweverTheStreamIsCut(t *testing.T) {
	var stream []byte
	var expected string
	for i, size := range []int{90, 1024, 100, 5000} {
		frame, err := produceRequest(size, 64)
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint32(frame[correlationAt:], uint32(i))
		stream = append(stream, frame...)
		expected += fmt.Sprintf("%d:%x ", size-4, frame[4:4+requestPrefix])
	}
	stream = append(stream, 0, 0, 0, 4, 9, 9, 9, 9) // shorter than what is shown
	expected += "4:09090909 "
	for cut := 1; cut <= len(stream); cut++ {
		var seen string
		frames := scanner{want: requestPrefix}
		for rest := stream; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			if err := frames.feed(rest[:min(cut, len(rest))], func(prefix []byte, length int) error {
				seen += fmt.Sprintf("%d:%x ", length, prefix)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if seen != expected {
			t.Fatalf("cut at every %d bytes: %s, expected %s", cut, seen, expected)
		}
	}
}

func TestScannerRefusesLengthsThatNoFrameHas(t *testing.T) {
	for _, length := range []uint32{0, 3, maxFrame + 1, 0xffffffff} {
		frames := scanner{want: 4}
		if err := frames.feed(binary.BigEndian.AppendUint32(nil, length), nil); err == nil {
			t.Fatalf("length %d is taken", int32(length))
		}
	}
}

func TestFetchAnswerHasExactlyTheSizeAskedFor(t *testing.T) {
	for _, size := range []int{100, 127 + 80, 1024, 16_500, 65_536, 1 << 20} {
		before, records, after, err := fetchAnswer(size, 7)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(before) + records + len(after); got != size {
			t.Errorf("%d bytes, not %d", got, size)
		}
	}
}
