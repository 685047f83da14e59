package join

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// If the last line of a container log ends after the tag, without a text and a newline, its record
// ends in a newline.
func TestEmptyLastLine(t *testing.T) {
	for _, rule := range []string{"go", "java", "python", "^a"} {
		rules, err := Parse([]string{"cri", rule})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		put := func(r Record) error { got = append(got, string(r.Text)); return nil }
		limits := &Limits{MaxRecord: 1000}
		limits.Default()
		j := New[int](rules, limits, put, nil)
		for _, text := range []string{"a.BException", "Traceback (most recent call last):", "panic: x", "a.BException", ""} {
			line := "2026-11-23T10:00:00Z stdout F " + text + "\n"
			if text == "" {
				line = "2026-11-23T10:00:00Z stdout F"
			}
			if err := j.Line([]byte(line), func() int { return 0 }, 0, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		j.Release(time.Time{}, true)
		if n := len(got); n == 0 || got[n-1][len(got[n-1])-1] != '\n' {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

// If put rejects a record, the Joiner continues to hold it. While a record is being passed to put,
// Held does not yield it.
func TestRejectedRecordIsHeld(t *testing.T) {
	rules, _ := Parse([]string{"cri", "java"})
	var fail error
	var log []string
	var j *Joiner[int64]
	limits := &Limits{MaxRecord: 1000}
	limits.Default()
	j = New[int64](rules, limits, func(r Record) error {
		log = append(log, fmt.Sprintf("%q to %d, held %d", r.Text, r.End, slices.Collect(j.Held)))
		return fail
	}, nil)
	now := time.Unix(1, 0)
	var at int64
	line := func(text string) error {
		start := at
		at += 10
		return j.Line([]byte("2026-11-23T10:00:00Z "+text+"\n"), func() int64 { return start }, at, now)
	}
	held := func(want ...int64) {
		t.Helper()
		if got := slices.Collect(j.Held); !slices.Equal(got, want) {
			t.Errorf("held %d, want %d; %q", got, want, log)
		}
	}
	line("stdout F a.BException")
	line("stderr P x")
	line("stdout F \tat y")
	held(0, 10)
	if due := j.Due(); !due.Equal(now.Add(time.Second)) {
		t.Error(due)
	}
	fail = errors.New("full")
	if line("stderr F z") != fail || line("stdout F end") != fail || j.Release(now, true) != fail {
		t.Error("an error of put was not returned")
	}
	held(0, 10)
	fail = nil
	at = 30
	line("stderr F z")
	held(0)
	line("stdout F end")
	held()
	if want := []string{
		`"xz\n" to 40, held [0]`, `"a.BException\n\tat y\n" to 30, held [10]`, `"a.BException\n\tat y\n" to 30, held [10]`,
		`"xz\n" to 40, held [0]`, `"a.BException\n\tat y\n" to 30, held []`, `"end\n" to 50, held []`,
	}; !slices.Equal(log, want) {
		t.Errorf("%q", log)
	}
}
