package main

import (
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// There are two kinds of events. Simple has a message and six scalar fields. Exception has a
// message, three scalar fields and two nested errors. Each error is a new value that contains the
// stack of its origin, see loki_stack.go.

type uuid [16]byte

const hexDigits = "0123456789abcdef"

func (u uuid) append(dst []byte) []byte {
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[b>>4], hexDigits[b&15])
	}
	return dst
}

func (u uuid) String() string               { return string(u.append(nil)) }
func (u uuid) MarshalText() ([]byte, error) { return u.append(nil), nil }

// traced is an error that contains the stack of its origin.
type traced struct {
	text  string
	inner error
	pcs   []uintptr
}

func (e *traced) Error() string         { return e.text }
func (e *traced) Unwrap() error         { return e.inner }
func (e *traced) StackTrace() []uintptr { return e.pcs }

// stackDepth is the number of frames of a stack.
const stackDepth = 17

func newTraced(text string, inner error) error {
	pcs := make([]uintptr, stackDepth)
	return &traced{text, inner, pcs[:runtime.Callers(2, pcs)]}
}

// stack formats the stack. It looks up the functions in each call, without a cache.
func (e *traced) stack() string {
	var b strings.Builder
	for frames := runtime.CallersFrames(e.pcs); ; {
		f, more := frames.Next()
		b.WriteString(f.Function)
		b.WriteByte(' ')
		b.WriteString(f.File)
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(f.Line))
		if !more {
			return b.String()
		}
		b.WriteByte('\n')
	}
}

const distinct = 10_000 // number of different events, which are logged repeatedly

func records(exception bool) []slog.Record {
	out := make([]slog.Record, distinct)
	at := time.Now()
	for i := range out {
		at = at.Add(time.Microsecond)
		if exception {
			r := slog.NewRecord(at, slog.LevelError, fmt.Sprintf("Operation %d on billing failed", i), 0)
			r.AddAttrs(slog.Int("OperationId", i), slog.String("Service", "billing"), slog.Bool("Retryable", true),
				slog.Any("Exception", operation(i)))
			out[i] = r
			continue
		}
		r := slog.NewRecord(at, slog.LevelInfo, fmt.Sprintf("User %d performed purchase on resource res-%d", i, i*7), 0)
		r.AddAttrs(slog.Int("UserId", i), slog.String("Action", "purchase"), slog.String("ResourceId", fmt.Sprintf("res-%d", i*7)),
			slog.Float64("Duration", 12.5+float64(i)), slog.Bool("Success", i%2 == 0), slog.Any("CorrelationId", uuid{byte(i), byte(i >> 8), 3, 4, 5, 6, 7, 8}))
		out[i] = r
	}
	return out
}
