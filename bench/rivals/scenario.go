package rivals

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"
)

// A Scenario is a kind of record. Each adapter logs it in the fastest way of its logger, and
// [Check] checks the output.
type Scenario uint8

const (
	Message    Scenario = iota // only a message
	Two                        // a string and an int
	Six                        // a request: two strings, two ints, duration, bool
	TenScalar                  // ten scalar fields
	TenMixed                   // see [Mixed]
	ContextTen                 // the fields of TenScalar as context; each record has only a message
	Group                      // a group of two fields
	Disabled                   // the record of Two, below the level of the logger
	Plain1K                    // one string of 1 KB, ASCII without escapes
	UTF81K                     // one string of 1 KB, mostly multi-byte
	Stack1K                    // one string of 1 KB, a stack trace with newlines and tabs

	// Only [Check] logs the following records.

	BadUTF8  // an invalid byte in a value and in the message
	BadKey   // a key with quote, backslash and newline
	Controls // every control character in a value
	NaN      // a float that JSON cannot represent
)

// Values of fields in the records.
const (
	Text    = "request served"
	BadText = "bad \xff text"
	OddKey  = "k\"e\\y\n"

	Method  = "GET"
	Path    = "/api/v1/orders/4711/items"
	Status  = 200
	Size    = int64(15342)
	Elapsed = 1234567 * time.Nanosecond
	Cached  = true

	Host    = "web-07.example.net"
	Region  = "eu-central-1"
	Trace   = "4bf92f3577b34da6a3ce929d0e0e4736"
	Load    = 0.7312
	Port    = 8443
	Attempt = 3
)

var (
	// At is the value of fields of type time.
	At = time.Date(2026, 3, 19, 12, 34, 56, 123456789, time.UTC)
	// Err is the value of fields of type error.
	Err = errors.New("connection reset by peer")
	// Ints is the value of fields that are slices.
	Ints = []int{1, 22, 333, 4444, 55555}
	// Someone is the value of fields that are objects, for native loggers.
	Someone = &User{ID: 4711, Name: "jane.doe", Admin: true}
	// Anyone is the value of fields that are objects, for slog. It is a plain struct, because a
	// caller of slog does not know the handler.
	Anyone = (*PlainUser)(Someone)
	// Nan is a variable, because NaN cannot be a constant.
	Nan = math.NaN()

	Plain = strings.Repeat("The quick brown fox jumps over the lazy dog, 0123456789. ", 18)[:1024]
	UTF8  = strings.ToValidUTF8(strings.Repeat("Größe žluťoučký 試験データ проверка 🙂 ", 40)[:1024], "")
	Stack = strings.Repeat("goroutine 1 [running]:\nmain.(*server).handle(0xc000012345, {0x7f, 0x10})\n\t/src/app/server.go:128 +0x1d\n", 10)[:1024]
	Ctrl  = "\x00\x01\x02\x03\x04\x05\x06\x07\b\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f"
)

// User is an object with three fields. Each of its methods implements the interface of one logger
// for objects; see the files of the adapters.
type User struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Admin bool   `json:"admin"`
}

// PlainUser is a User without methods.
type PlainUser User

// Mixed describes the fields of TenMixed in the table.
const Mixed = "ten mixed fields: int, int64, float64, bool, string, duration, time, error, []int of five, object of three"

// Level returns the level of the logger. The records have the level info. Adapters divide by four,
// because slog's levels are 4 apart and those of other loggers 1.
func (s Scenario) Level() slog.Level {
	if s == Disabled {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Strings returns the message and, in scenarios with a single field that is a string, its key and
// value.
func (s Scenario) Strings() (msg, key, value string) {
	switch s {
	case Plain1K:
		return Text, "body", Plain
	case UTF81K:
		return Text, "body", UTF8
	case Stack1K:
		return Text, "body", Stack
	case BadUTF8:
		return BadText, "body", BadText
	case BadKey:
		return Text, OddKey, Method
	case Controls:
		return Text, "body", Ctrl
	}
	return Text, "", ""
}

// Run executes n operations.
type Run = func(worker, n int)
