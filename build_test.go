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

type codecMemOutput struct {
	memOutput
	c batch.Codec
}

func (k *codecMemOutput) Codec() batch.Codec { return k.c }

type panicEncoder struct{ encode.Encoder }

func (panicEncoder) NeedsPC() bool { panic("oops") }

type nilScopeEncoder struct{ encode.Encoder }

func (nilScopeEncoder) Scope() encode.Scope { return nil }

// The error of NewRouter names every invalid option and its position.
func TestOptionErrorsNameEveryOption(t *testing.T) {
	var (
		w       lines
		nilFile *os.File
		nilVar  *slog.LevelVar
		nilFn   writerFunc
		nilEnc  *countingEncoder
	)
	logfmt := &codecMemOutput{c: encode.Logfmt(nil).Codec()}
	for _, tt := range []struct {
		opts []Option
		want []string
	}{
		{nil, []string{"routes: there is none"}},
		{[]Option{nil}, []string{"option 1: it is nil", "routes: there is none"}},
		{[]Option{Route(nil, Writer(&w, Direct()))}, []string{"route 1: the encoder is nil"}},
		{[]Option{Route(nilEnc, Writer(&w, Direct()))}, []string{"route 1: the encoder is nil"}},
		{[]Option{Route(plain())}, []string{"route 1: it has no output"}},
		{[]Option{Route(panicEncoder{plain()}, Writer(&w, Direct()))}, []string{"route 1: the encoder does not work: panic: oops"}},
		{[]Option{Route(encode.JSON(&encode.Options{Time: "iso", Level: "loud"}), Writer(&w, Direct()))},
			[]string{`route 1: the encoder does not work: encode: cannot use Time "iso"`, `encode: cannot use Level "loud": it is not one of "upper", "lower", "number"`}},
		{[]Option{Route(nilScopeEncoder{plain()}, Writer(&w, Direct()))}, []string{"route 1: the encoder does not work: its Scope is nil"}},
		{[]Option{Route(plain(), OutputSpec{})}, []string{"route 1, output 1: the writer is nil"}},
		{[]Option{Route(plain(), Writer(&w, Direct()), Writer(nilFile, Direct()))}, []string{"route 1, output 2 (forebay.Writer): the writer is nil"}},
		{[]Option{Route(plain(), Writer(nilFn, Direct()))}, []string{"route 1, output 1 (forebay.Writer): the writer is nil"}},
		{[]Option{Route(plain(), Writer(&w, Direct(), Level(nilVar)))}, []string{"route 1, output 1 (forebay.Writer): the level is a nil *slog.LevelVar"}},
		{[]Option{Route(plain(), Writer(&w, Direct(), nil))}, []string{"route 1, output 1 (forebay.Writer): an option is nil"}},
		{[]Option{Route(plain(), Writer(&w, Direct(), BusyTimeout(0)))}, []string{"route 1, output 1 (forebay.Writer): BusyTimeout 0s is not positive; the default is 250ms"}},
		{[]Option{BusyTimeout(-time.Second), Route(plain(), Writer(&w, Direct()))}, []string{"BusyTimeout: -1s is not positive"}},
		{[]Option{Context(nil), Route(plain(), Writer(&w, Direct()))}, []string{"Context 1: the function is nil"}},
		{[]Option{Route(plain(), Writer(&w, Direct(), Name("a"))), Route(plain(), Writer(&w, Direct(), Name("a")))},
			[]string{`route 2, output 1 (forebay.Writer): the name "a" is already used by route 1, output 1 (forebay.Writer)`}},
		{[]Option{Route(encode.JSON(nil), Writer(logfmt))}, []string{"route 1, output 1 (forebay.Writer): the encoder writes application/", "but the writer accepts"}},
		{[]Option{Route(nil), Route(plain(), Writer(nil, Direct(), Level(nilVar), BusyTimeout(-1)))},
			[]string{"route 1: the encoder is nil", "route 1: it has no output", "route 2, output 1 (forebay.Writer): the level", "route 2, output 1 (forebay.Writer): BusyTimeout", "route 2, output 1 (forebay.Writer): the writer is nil"}},
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

// Unusual but valid options are accepted.
func TestUnusualOptionsAreAccepted(t *testing.T) {
	logfmt := &codecMemOutput{c: encode.Logfmt(nil).Codec()}
	noCodec := &codecMemOutput{}
	newRouter(t, OnError(nil), BusyTimeout(time.Nanosecond),
		Route(encode.Logfmt(nil), Writer(logfmt), Writer(noCodec), Writer(io.Discard, Direct()), Writer(io.Discard, Direct())),
		Route(encode.JSON(nil), Writer(writerFunc(io.Discard.Write), Direct()), Writer(writerFunc(io.Discard.Write), Direct(), OnError(nil))))
}

func TestDefaultNamesAreUnique(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var a, b, c lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct()), Writer(&b, Direct()), Writer(f, Direct(), Name("forebay.lines#2")), Writer(&c, Direct()),
		Writer(f, Direct()), Writer(&panickingOutput{})))
	var names []string
	for _, o := range r.Stats().Outputs {
		names = append(names, o.Name)
	}
	want := "forebay.lines forebay.lines#3 forebay.lines#2 forebay.lines#4 " + f.Name() + " forebay.panickingOutput"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// If outputs with different BusyTimeouts have the same writer, the shortest one applies.
func TestSharedWriterHasShorterBusyTimeout(t *testing.T) {
	var w lines
	r := newRouter(t, BusyTimeout(time.Minute), Route(plain(), Writer(&w, Direct()), Writer(&w, Direct(), BusyTimeout(time.Second)), Writer(&w, Direct())))
	for _, o := range r.h.core.outputs {
		if o.direct.busy != time.Second || !o.shared {
			t.Errorf("busy %v, shared %t", o.direct.busy, o.shared)
		}
	}
}
