// Package dedup finds the records that a consumer of Kafka or JetStream gets twice.
//
// A record is sent again when its answer was lost: with a connection, a broker, or the
// process that sent it. It keeps its [ID], through crash-safe memory and spool as well. The
// drivers of forebay send the ID along: as Nats-Msg-Id, and as the header forebay-id.
package dedup

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// Header is the name of the header that holds the [ID] of a Kafka record.
const Header = "forebay-id"

// An ID names a record for good: the memory that accepted it, and its place there.
type ID struct {
	Origin [16]byte // zero names no record
	Ticket uint64   // counts from 1
}

// String returns the text form of id: 32 hexadecimal digits, a minus sign, and the
// ticket in decimal.
func (id ID) String() string { return string(id.Append(nil)) }

// Append appends the text form of id to dst and returns it.
func (id ID) Append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, id.Origin[:])
	dst = append(dst, '-')
	return strconv.AppendUint(dst, id.Ticket, 10)
}

var errForm = errors.New("want 32 hexadecimal digits, a minus sign and a number")

// Parse reads the text form of an ID. text is not kept.
func Parse(text []byte) (ID, error) {
	var id ID
	if len(text) < 34 || text[32] != '-' {
		return id, notRead(text)
	}
	if _, err := hex.Decode(id.Origin[:], text[:32]); err != nil {
		return ID{}, notRead(text)
	}
	for _, c := range text[33:] {
		d := uint64(c - '0')
		if d > 9 || id.Ticket > (1<<64-1-d)/10 {
			return ID{}, notRead(text)
		}
		id.Ticket = id.Ticket*10 + d
	}
	return id, nil
}

func notRead(text []byte) error {
	return fmt.Errorf("dedup: cannot read the id %.60q: %w", text, errForm)
}
