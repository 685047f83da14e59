// Package dedup detects records that a consumer of Kafka or JetStream receives twice.
//
// A record is sent again if its acknowledgement was lost because a connection, a broker or the
// sending process failed. The record keeps its [ID], even in crash-safe memory and in a spool. The
// drivers of forebay send the ID as Nats-Msg-Id, and as the header forebay-id.
//
//	message ─▶ Parse ─▶ Window.First ─┬─ true ──▶ process
//	                                  └─ false ─▶ skip
//
// For example:
//
//	w := dedup.New(nil)
//	id, err := dedup.Parse(header)
//	if err == nil && !w.First(id) {
//		continue // received before
//	}
package dedup

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// Header is the name of the header that holds the [ID] of a Kafka record.
const Header = "forebay-id"

// An ID identifies a record permanently. Origin identifies the output, in one process, that
// accepted the record. Ticket is the position of the record among all records that the output
// accepted, from 1.
type ID struct {
	Origin [16]byte // random; zero identifies no record
	Ticket uint64
}

// String formats id as 32 hexadecimal digits, a hyphen, and the ticket in decimal.
func (id ID) String() string { return string(id.Append(nil)) }

// Append appends the text that [ID.String] returns to dst and returns the extended slice.
func (id ID) Append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, id.Origin[:])
	dst = append(dst, '-')
	return strconv.AppendUint(dst, id.Ticket, 10)
}

// errForm is wrapped by the errors that Parse returns.
var errForm = errors.New("want 32 hexadecimal digits, a minus sign and a number")

// Parse parses the text that [ID.String] returns. It does not retain text. It returns an error if
// text has another format.
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

// notRead returns the error for text that is not an ID.
func notRead(text []byte) error {
	return fmt.Errorf("dedup: cannot read the id %.60q: %w", text, errForm)
}
