package faults

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Direction says who sent a message.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

func (d Direction) String() string { return [...]string{"to the server", "to the client"}[d] }

// Message is one message of the protocol, as a recording keeps it.
type Message struct {
	Direction Direction
	Startup   bool   // it belongs to establishing the connection
	Kind      byte   // its type byte; 0 for the first of a connection, which has none
	SQL       string // what a Parse or Query message carries
}

const (
	messageBytesMax = 1 << 30
	cancelRequest   = 80877102 // takes the place of a protocol version
)

var errNotTheProtocol = errors.New("faults: this is not the PostgreSQL protocol")

// readStartup reads the first message of a connection, which has no type byte.
func readStartup(from io.Reader) (packet []byte, cancels bool, err error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, false, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size < 8 || size > 10000 {
		return nil, false, errNotTheProtocol
	}
	packet = make([]byte, size)
	copy(packet, length[:])
	_, err = io.ReadFull(from, packet[4:])
	return packet, binary.BigEndian.Uint32(packet[4:]) == cancelRequest, err
}

// readMessage reads any later message (PostgreSQL manual, section 55.7) and
// returns its bytes, type and length included.
func readMessage(from io.Reader) (packet []byte, err error) {
	var header [5]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size < 4 || size > messageBytesMax {
		return nil, errNotTheProtocol
	}
	packet = make([]byte, 1+size)
	copy(packet, header[:])
	_, err = io.ReadFull(from, packet[5:])
	return packet, err
}

// sqlOf is the SQL in a client's message, or "".
func sqlOf(packet []byte) string {
	body := packet[5:]
	switch packet[0] {
	case 'P': // a name, the SQL, the types of its parameters
		_, body, _ = bytes.Cut(body, []byte{0})
	case 'Q':
	default:
		return ""
	}
	sql, _, _ := bytes.Cut(body, []byte{0})
	return string(sql)
}
