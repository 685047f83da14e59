package loki

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// If Loki does not accept a stream, its records move to a spare stream and keep their labels as
// metadata. They get unique times, which do not change when the records are sent again. Each moved
// record is counted once.
func TestMovedRecordsKeepLabelsAsMetadata(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		for text, why := range map[string]reason{
			"maximum active stream limit exceeded when trying to create stream {}, reduce": streamsFull,
			"entry for stream '{}' has 4 label names; limit 2":                             labelTooMany,
			"stream '{}' has label value too long: 'x'":                                    labelTooLong,
		} {
			t.Run(fmt.Sprint(w, why), func(t *testing.T) {
				now := time.Now()
				p := &peer{}
				down := true
				var tried [][]gotStream
				p.answer = func(_ int, r *request) (int, string, http.Header) {
					if slices.ContainsFunc(r.streams, func(s gotStream) bool { return strings.Contains(s.Labels, "user") }) {
						if why == streamsFull {
							return 429, text, nil
						}
						return 400, text, nil
					}
					if len(r.streams[0].Entries) > 0 && strings.Contains(fmt.Sprint(r.streams[0].Entries), "user") {
						tried = append(tried, r.streams)
					}
					if down {
						return 503, "", nil
					}
					return 204, "", nil
				}
				e := &encoded{t: t, s: sinkFor(t, p, Config{Wire: w, UniqueTimes: true, Concurrency: 1, LabelAttrs: []string{"user", "zone"}, MetadataAttrs: []string{"m", "zone"}})}
				e.add(nil, event(now, 0, "x"))
				for i := range 3 {
					e.add(nil, event(now, 0, "x", slog.Int("user", i), slog.String("zone", "a\"b")))
					e.add(nil, event(now, 0, "x", slog.Int("user", i), slog.String("m", "more")))
				}
				if o := e.send(); !o.is("again [0 1 2 3 4 5 6]") {
					t.Fatal(o)
				}
				n := len(tried)
				down = false
				if err := e.send(); err != nil {
					t.Fatal(err)
				}
				if n == 0 || !reflect.DeepEqual(tried[:n], tried[n:2*n]) {
					t.Errorf("first tried %v\nthen %v", tried[:n], tried[n:])
				}
				times := map[int64]bool{}
				users := map[string]int{}
				for _, st := range tried[n:] {
					for _, en := range st[0].Entries {
						times[en.Time.UnixNano()] = true
						users[en.Meta["user"]+" "+en.Meta["zone"]+en.Meta["m"]]++
					}
				}
				want := map[string]int{"0 a\"b": 1, "0 more": 1, "1 a\"b": 1, "1 more": 1, "2 a\"b": 1, "2 more": 1}
				if !reflect.DeepEqual(users, want) || len(times) != 6 || times[now.UnixNano()] {
					t.Errorf("metadata %v, %d times", users, len(times))
				}
				if by := e.s.observed.counts(); by[why] != 6 || len(e.s.push.moves.at) != 0 {
					t.Errorf("counted %v, %d moves are still stored", by, len(e.s.push.moves.at))
				}
			})
		}
	}
}

// Labels that become metadata keep their values even if their metadata name is used more than once.
func TestMetadataOfMovedLabelsIsComplete(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
			if strings.Contains(r.streams[0].Labels, "a_b") {
				return 429, "maximum active stream limit exceeded", nil
			}
			return 204, "", nil
		}}
		e := &encoded{t: t, s: sinkFor(t, p, Config{Wire: w, LabelAttrs: []string{"a.b", "a..b", "c"}, MetadataAttrs: []string{"a-b", "c"}})}
		e.add(nil, event(time.Now(), 0, "x", slog.Int("a.b", 1), slog.Int("a..b", 2), slog.Int("a-b", 3), slog.Int("c", 4)))
		if err := e.send(); err != nil {
			t.Fatal(err)
		}
		reqs := p.requests()
		last := reqs[len(reqs)-1].streams[0]
		if got, want := last.Entries[0].Meta, map[string]string{"a_b": "3", "a_b_": "2", "a_b_3": "1", "c": "4"}; !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", w, got, want)
		}
	}
}
