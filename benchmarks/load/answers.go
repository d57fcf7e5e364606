package main

import "encoding/binary"

// supported is what the fake broker says it has: key, lowest and highest version.
var supported = [][3]uint16{{0, 0, 11}, {1, 0, 16}, {2, 1, 11}, {3, 1, 12}, {17, 0, 1}, {18, 0, 3}, {36, 0, 2}}

const unsupportedVersion = 35

// apiVersionsAnswer is a whole ApiVersions response frame. Its header is v0 in every version, and a version that is
// not supported gets a v0 body (KIP-511).
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

// metadataAnswer is a whole Metadata response frame, v1 to v12: one broker, cluster "bench", no topics.
func metadataAnswer(version uint16, correlation uint32, host string, port int) []byte {
	frame := binary.BigEndian.AppendUint32(make([]byte, 4, 128), correlation)
	flexible := version >= 9
	text := func(value string) {
		if flexible {
			frame = appendCompact(frame, value)
			return
		}
		frame = binary.BigEndian.AppendUint16(frame, uint16(len(value)))
		frame = append(frame, value...)
	}
	array := func(count int) {
		if flexible {
			frame = append(frame, byte(count+1))
			return
		}
		frame = binary.BigEndian.AppendUint32(frame, uint32(count))
	}
	tags := func() {
		if flexible {
			frame = append(frame, 0)
		}
	}
	tags() // response header v1 goes with the flexible versions
	if version >= 3 {
		frame = binary.BigEndian.AppendUint32(frame, 0)
	}
	array(1)
	frame = binary.BigEndian.AppendUint32(frame, 1)
	text(host)
	frame = binary.BigEndian.AppendUint32(frame, uint32(port))
	if flexible { // rack: null
		frame = append(frame, 0)
	} else {
		frame = append(frame, 0xff, 0xff)
	}
	tags()
	if version >= 2 {
		text("bench")
	}
	frame = binary.BigEndian.AppendUint32(frame, 1)
	array(0)
	if version >= 8 && version <= 10 {
		frame = binary.BigEndian.AppendUint32(frame, 0x80000000) // authorized operations: not asked
	}
	tags()
	return sealed(frame)
}
