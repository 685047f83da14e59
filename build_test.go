package forebay

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

type codedTank struct {
	tank
	c batch.Codec
}

func (k *codedTank) Codec() batch.Codec { return k.c }

type panicEncoder struct{ encode.Encoder }

func (panicEncoder) NeedsPC() bool { panic("oops") }

type nilScopeEncoder struct{ encode.Encoder }

func (nilScopeEncoder) Scope() encode.Scope { return nil }

// Every fault is named, with its place, and all at once.
func TestOptionFaults(t *testing.T) {
	var (
		w       lines
		nilFile *os.File
		nilVar  *slog.LevelVar
		nilFn   writerFunc
		nilEnc  *countingEncoder
	)
	logfmt := &codedTank{c: encode.Logfmt(nil).Codec()}
	for _, tt := range []struct {
		opts []Option
		want []string
	}{
		{nil, []string{"routes: there is none"}},
		{[]Option{nil}, []string{"option 1: it is nil", "routes: there is none"}},
		{[]Option{Route(nil, Output(nil, &w))}, []string{"route 1: the encoder is nil"}},
		{[]Option{Route(nilEnc, Output(nil, &w))}, []string{"route 1: the encoder is nil"}},
		{[]Option{Route(plain())}, []string{"route 1: it has no output"}},
		{[]Option{Route(panicEncoder{plain()}, Output(nil, &w))}, []string{"route 1: the encoder does not work: panic: oops"}},
		{[]Option{Route(encode.JSON(&encode.Options{Time: "iso", Level: "loud"}), Output(nil, &w))},
			[]string{`route 1: the encoder does not work: encode: cannot use Time "iso"`, `encode: cannot use Level "loud": it is not one of "upper", "lower", "number"`}},
		{[]Option{Route(nilScopeEncoder{plain()}, Output(nil, &w))}, []string{"route 1: the encoder does not work: its Scope is nil"}},
		{[]Option{Route(plain(), OutputSpec{})}, []string{"route 1, output 1: the writer is nil"}},
		{[]Option{Route(plain(), Output(nil, &w), Output(nil, nilFile))}, []string{"route 1, output 2: the writer is nil"}},
		{[]Option{Route(plain(), Output(nil, nilFn))}, []string{"route 1, output 1: the writer is nil"}},
		{[]Option{Route(plain(), Output(nilVar, &w))}, []string{"route 1, output 1: the level is a nil *slog.LevelVar"}},
		{[]Option{Route(plain(), Output(nil, &w, nil))}, []string{"route 1, output 1: an option is nil"}},
		{[]Option{Route(plain(), Output(nil, &w, BusyTimeout(0)))}, []string{"route 1, output 1: BusyTimeout 0s is not positive; the default is 250ms"}},
		{[]Option{BusyTimeout(-time.Second), Route(plain(), Output(nil, &w))}, []string{"BusyTimeout: -1s is not positive"}},
		{[]Option{Context(nil), Route(plain(), Output(nil, &w))}, []string{"Context 1: the function is nil"}},
		{[]Option{Route(plain(), Output(nil, &w, Name("a"))), Route(plain(), Output(nil, &w, Name("a")))},
			[]string{`route 2, output 1: the name "a" is already used by route 1, output 1`}},
		{[]Option{Route(encode.JSON(nil), Output(nil, logfmt))}, []string{"route 1, output 1: the encoder writes application/", "but the writer accepts"}},
		{[]Option{Route(nil), Route(plain(), Output(nilVar, nil, BusyTimeout(-1)))},
			[]string{"route 1: the encoder is nil", "route 1: it has no output", "route 2, output 1: the level", "route 2, output 1: BusyTimeout", "route 2, output 1: the writer is nil"}},
	} {
		r, err := NewRouter(tt.opts...)
		if err == nil || r != nil {
			t.Errorf("no error, want %q", tt.want)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q\nlacks %q", err, want)
			}
		}
		if !strings.HasPrefix(err.Error(), "forebay: cannot make router: ") {
			t.Errorf("%v does not say what cannot be made", err)
		}
		if got := len(err.(interface{ Unwrap() []error }).Unwrap()); len(tt.want) > 2 && got != len(tt.want) {
			t.Errorf("%d faults, want %d: %v", got, len(tt.want), err)
		}
	}
}

// What is accepted although it looks odd.
func TestOptionsAccepted(t *testing.T) {
	logfmt := &codedTank{c: encode.Logfmt(nil).Codec()}
	noCodec := &codedTank{}
	newRouter(t, OnError(nil), BusyTimeout(time.Nanosecond),
		Route(encode.Logfmt(nil), Output(nil, logfmt), Output(nil, noCodec), Output(nil, io.Discard), Output(nil, io.Discard)),
		Route(encode.JSON(nil), Output(nil, writerFunc(io.Discard.Write)), Output(nil, writerFunc(io.Discard.Write), OnError(nil))))
}

func TestDefaultNames(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var a, b, c lines
	r := newRouter(t, Route(plain(), Output(nil, &a), Output(nil, &b), Output(nil, f, Name("forebay.lines#2")), Output(nil, &c),
		Output(nil, f), Output(nil, &panicTank{}), Output(nil, NewSlot(0))))
	var names []string
	for _, o := range r.Stats().Outputs {
		names = append(names, o.Name)
	}
	want := "forebay.lines forebay.lines#3 forebay.lines#2 forebay.lines#4 " + f.Name() + " forebay.panicTank slot"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Outputs with one writer wait for it no longer than the shorter BusyTimeout.
func TestSharedBusyTimeout(t *testing.T) {
	var w lines
	r := newRouter(t, BusyTimeout(time.Minute), Route(plain(), Output(nil, &w), Output(nil, &w, BusyTimeout(time.Second)), Output(nil, &w)))
	for _, o := range r.h.core.outputs {
		if o.dir.busy != time.Second || !o.shared {
			t.Errorf("busy %v, shared %t", o.dir.busy, o.shared)
		}
	}
}
