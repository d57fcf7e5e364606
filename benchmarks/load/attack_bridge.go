package main

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
)

// The frames of the bridge's protocol that come before its token is proven (docs/bridge-protocol.md).
const (
	bridgeHello     = 1
	bridgeProof     = 3
	challengeFrame  = 4 + 1 + 1 + 32
	bridgeIDBytes   = 16
	bridgeNonce     = 32
	bridgeProofSize = 32
)

// bridgeProofs greets a listener for bridges, and shows a random proof of its token.
func (a *attacker) bridgeProofs(connection net.Conn, _ int) error {
	random := make([]byte, bridgeIDBytes+bridgeNonce)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	hello := append([]byte{bridgeHello, 'K', 'T', 'B', 'P', 1, 1}, random...)
	hello = append(hello, 0, 0, 0, 1) // the node id
	hello = append(hello, 0, 0, 0, 0) // no cluster id, no version
	if _, err := connection.Write(bridgeFrame(hello)); err != nil {
		return err
	}
	if _, err := io.ReadFull(connection, make([]byte, challengeFrame)); err != nil {
		return err
	}
	proof := append([]byte{bridgeProof}, random[:bridgeProofSize]...)
	if _, err := connection.Write(bridgeFrame(proof)); err != nil {
		return err
	}
	return drain(connection)
}

func bridgeFrame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}
