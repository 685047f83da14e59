package loki

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A batch of 200 streams is sent in one request, even at the first Send. The request contains each
// record once, in order.
func TestBatchOfManyStreamsIsOneRequest(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON, wireGzip} {
		bubble.Test(t, func(t *testing.T) {
			const files, levels, rounds = 50, 4, 12
			p := new(peer)
			h := handlerFor(t, p, Config{LabelAttrs: []string{"file"}, Wire: w, Line: Line{Body: bodyLogfmt}})
			log := slog.New(h)
			for round := range rounds {
				for k := range 2 {
					for i := range files * levels {
						log.Log(t.Context(), slog.Level(i%levels)*4, fmt.Sprintf("%02d-%d", round, k), "file", i/levels)
					}
				}
				time.Sleep(2 * defaultBatchAge)
			}
			if _, err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
			reqs := p.requests()
			if len(reqs) != rounds {
				t.Errorf("%s: %d requests for %d batches", w, len(reqs), rounds)
			}
			got := map[string][]string{}
			for _, r := range reqs {
				if r.err != nil || len(r.streams) != files*levels {
					t.Fatalf("%s: %d streams in a request: %v", w, len(r.streams), r.err)
				}
				for _, s := range r.streams {
					for _, e := range s.Entries {
						got[s.Labels] = append(got[s.Labels], e.Line)
					}
				}
			}
			for labels, lines := range got {
				if len(lines) != 2*rounds || !slices.IsSorted(lines) {
					t.Errorf("%s: %s has %q", w, labels, lines)
				}
			}
		})
	}
}

// No request exceeds the limit of the Config. If a request is too large for the server, its streams
// are sent in two halves. Later requests stay below the server's limit.
func TestSharedRequestsKeepLimits(t *testing.T) {
	const limit = 8 << 10
	for _, most := range []int{limit, limit / 3} { // limit of the server
		var refused int
		p := &peer{}
		p.answer = func(_ int, r *request) (int, string, http.Header) {
			size := 0
			for _, s := range r.streams {
				size += len(s.Labels)
				for _, e := range s.Entries {
					size += len(e.Line)
				}
			}
			if size > limit {
				t.Errorf("got a request of %d bytes", size)
			}
			if size > most {
				refused++
				return 413, "too large", nil
			}
			return 204, "", nil
		}
		e := &encoded{t: t, s: sinkFor(t, p, Config{LabelAttrs: []string{"n"}, Concurrency: 1, Limits: Limits{MaxRequestBytes: limit}})}
		for i := range 400 {
			e.add(nil, event(time.Now(), 0, strings.Repeat("x", 100), slog.Int("n", i%40)))
		}
		for range 10 {
			if o := e.send(); o != nil {
				t.Fatal(o)
			}
		}
		if n := len(p.requests()); most == limit && n > 10*(400*200/limit+1) || refused > 12 {
			t.Errorf("%d requests, %d refused", n, refused)
		}
	}
}

// If a response with status 400 names entries of several streams, these entries are refused, and
// nothing is sent again. If the response does not identify the streams, each half of the streams is
// sent separately.
func TestRefusalsOfSeveralStreamsAreAssigned(t *testing.T) {
	for _, tt := range []struct {
		name     string
		text     func(labels string, size int) string
		requests int // maximum number
	}{
		{"named", func(labels string, size int) string {
			return fmt.Sprintf("max entry size '500' bytes exceeded for stream '%s' while adding an entry with length '%d' bytes", labels, size)
		}, 1},
		{"named, with labels of Loki's", func(labels string, size int) string {
			return fmt.Sprintf("max entry size '500' bytes exceeded for stream '%s' while adding an entry with length '%d' bytes", strings.Replace(labels, "}", `, service_name="it's; 7 errors like: \"x\""}`, 1), size)
		}, 1},
		{"without a name", func(_ string, size int) string {
			return fmt.Sprintf("max entry size '500' bytes exceeded for stream '{}' while adding an entry with length '%d' bytes", size)
		}, 14},
		{"of another stream", func(_ string, size int) string {
			return fmt.Sprintf(`max entry size '500' bytes exceeded for stream '{n="3"}' while adding an entry with length '%d' bytes`, size)
		}, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored := map[string]int{}
			p := &peer{}
			p.answer = func(_ int, r *request) (int, string, http.Header) {
				errs := map[string]int{}
				for _, s := range r.streams {
					for _, e := range s.Entries {
						if len(e.Line) > 500 {
							errs[tt.text(s.Labels, len(e.Line))]++
						} else {
							stored[e.Line]++
						}
					}
				}
				var parts []string
				for text, n := range errs {
					if len(errs) > 1 || n > 1 {
						text = fmt.Sprintf("%d errors like: %s", n, text)
					}
					parts = append(parts, text)
				}
				if len(parts) > 0 {
					return 400, strings.Join(parts, "; "), nil
				}
				return 204, "", nil
			}
			e := &encoded{t: t, s: sinkFor(t, p, Config{LabelAttrs: []string{"n"}, Concurrency: 1})}
			var want []int
			for i := range 100 {
				msg := fmt.Sprint("m", i)
				if i%10 == 3 && i%4 > 0 || i == 57 { // records of some streams are too long
					msg += strings.Repeat("x", 500+i)
					want = append(want, i)
				}
				e.add(nil, event(time.Now(), 0, msg, slog.Int("n", i%10)))
			}
			got := e.send()
			if !slices.Equal(got.refused(), want) || !got.Open.Empty() {
				t.Errorf("got %v, want %v refused", got, want)
			}
			if n := len(p.requests()); n > tt.requests {
				t.Errorf("%d requests, want %d at most", n, tt.requests)
			}
			if len(stored) != 100-len(want) {
				t.Errorf("%d lines are stored", len(stored))
			}
			if tt.requests == 1 && e.s.Stats().Splits != 0 {
				t.Errorf("%+v", e.s.Stats())
			}
		})
	}
}

// Each stream takes its turn as the last one of a request. Streams that Loki may have to create
// come after all others.
func TestLastPlaceOfRequestRotates(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 5
		p := new(peer)
		h := handlerFor(t, p, Config{LabelAttrs: []string{"n"}})
		log := slog.New(h)
		batchOf := func(from, to int) (streams []string) {
			for i := from; i < to; i++ {
				log.Info("x", "n", i)
			}
			time.Sleep(2 * defaultBatchAge)
			reqs := p.requests()
			for _, s := range reqs[len(reqs)-1].streams {
				streams = append(streams, s.Labels)
			}
			return streams
		}
		for round := range 3 {
			last := map[string]bool{}
			for range n {
				last[batchOf(0, n)[n-1]] = true
			}
			if len(last) != n {
				t.Errorf("round %d: the last streams were %v", round, last)
			}
		}
		// In the first round the streams are new. In the second round Loki no longer has them in
		// memory.
		for _, idle := range []time.Duration{0, time.Hour} {
			time.Sleep(idle)
			if idle > 0 {
				batchOf(0, n)
			}
			got := batchOf(0, n+3)
			for i, labels := range got {
				if isOld := strings.Contains("01234", labels[len(labels)-3:len(labels)-2]); isOld != (i < n) {
					t.Errorf("after %v: the streams are in the order %v", idle, got)
					break
				}
			}
		}
		if _, err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// After Loki had no room for a stream, each stream that Loki has not confirmed recently is sent in
// a separate request. In a shared request, Loki would not report its refusal if an existing stream
// came after it.
func TestUnconfirmedStreamIsSentAloneAfterLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &lastOnlyIngester{most: 3, streams: map[string]*lastOnlyStream{}, stored: map[string]bool{}, refused: map[string]int{}, behind: time.Hour}
		conf := Config{LabelAttrs: []string{"key"}, Line: Line{Body: bodyLogfmt}}
		earlier := handlerFor(t, &peer{answer: l.answer}, conf) // an earlier process
		slog.New(earlier).Info("m", "key", "old", "id", 0)
		slog.New(earlier).Info("m", "id", 1) // creates the stream of the level
		slog.New(earlier).Info("m", "key", "older", "id", 2)
		if _, err := earlier.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := handlerFor(t, &peer{answer: l.answer}, conf)
		slog.New(h).Info("m", "key", "new1", "id", 3)
		time.Sleep(2 * defaultBatchAge)
		slog.New(h).Info("m", "key", "new2", "id", 4)
		slog.New(h).Info("m", "key", "old", "id", 5)
		time.Sleep(2 * defaultBatchAge)
		if rep, err := h.Close(t.Context()); err != nil || rep.Delivered != 3 || len(l.stored) != 6 || l.refused["streams"] != 2 {
			t.Errorf("%d stored, refused %v: %v %v", len(l.stored), l.refused, rep, err)
		}
	})
}

// A lastOnlyIngester behaves like an ingester of Loki 3.7 with its default limits, except that it
// has room for only a few streams. Its response reports only the result for the last stream of a
// request.
type lastOnlyIngester struct {
	mu      sync.Mutex
	most    int // maximum number of streams
	streams map[string]*lastOnlyStream
	stored  map[string]bool // lines
	refused map[string]int  // number of refused streams of requests, by reason
	behind  time.Duration   // maximum time by which an entry may be older than the newest of its stream
}

type lastOnlyStream struct {
	newest, used time.Time
	rate         bucket
}

func (l *lastOnlyIngester) answer(_ int, r *request) (int, string, http.Header) {
	return ingester(func(_ int, r *request) (status int, text string, _ http.Header) {
		l.mu.Lock()
		defer l.mu.Unlock()
		status, why, text := l.push(r.streams[0])
		if status != 204 {
			l.refused[why]++
		}
		return status, text, nil
	})(0, r)
}

func (l *lastOnlyIngester) push(s gotStream) (status int, why, text string) {
	now := time.Now()
	for labels, st := range l.streams {
		if now.Sub(st.used) > 35*time.Minute {
			delete(l.streams, labels)
		}
	}
	st := l.streams[s.Labels]
	if st == nil {
		if len(l.streams) >= l.most {
			return 429, "streams", "Maximum active stream limit exceeded when trying to create stream " + s.Labels + ", reduce the number of active streams"
		}
		const rate, burst = 3 << 20, 15 << 20
		st = &lastOnlyStream{rate: bucket{rate: rate, burst: burst, have: burst, at: now}}
		l.streams[s.Labels] = st
	}
	st.used = now
	size := 0
	for _, e := range s.Entries {
		size += len(e.Line)
	}
	if !st.rate.allow(size) {
		n := len(s.Entries)
		return 429, "rate", fmt.Sprintf("entry with timestamp %s ignored, reason: 'Per stream rate limit exceeded (limit: 3MB/sec) while attempting to ingest for stream '%s' totaling 40kB, consider',\nuser 'x', total ignored: %d out of %d for stream: %s", s.Entries[0].Time, s.Labels, n, n, s.Labels)
	}
	var far []string
	n := 0
	for _, e := range s.Entries {
		if cutoff := st.newest.Add(-l.behind); e.Time.Before(cutoff) {
			if n++; n <= 10 {
				far = append(far, fmt.Sprintf("entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',\n", e.Time.UTC(), e.Time.UTC().Format(time.RFC3339), cutoff.UTC().Format(time.RFC3339)))
			}
			continue
		}
		l.stored[lineID(e.Line)] = true
		if e.Time.After(st.newest) {
			st.newest = e.Time
		}
	}
	if n > 0 {
		return 400, "behind", strings.Join(far, "") + fmt.Sprintf("user 'fake', total ignored: %d out of %d for stream: %s", n, len(s.Entries), s.Labels)
	}
	return 204, "", ""
}

func lineID(line string) string {
	_, id, _ := strings.Cut(line, "id=")
	id, _, _ = strings.Cut(id, " ")
	return id
}

// Loki reports only the result for the last stream of a request. Nevertheless, all records that
// count as delivered are stored. The random walk exceeds each limit of a stream.
func TestDeliveredRecordsAreStoredDespiteSilentLoss(t *testing.T) {
	seed := testkit.Seed(t)
	for walk := range testkit.Rounds(t, 1, 300) {
		bubble.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(walk)))
			l := &lastOnlyIngester{most: 12 + rng.IntN(20), streams: map[string]*lastOnlyStream{}, stored: map[string]bool{}, refused: map[string]int{}, behind: time.Hour}
			p := &peer{answer: l.answer}
			var mu sync.Mutex
			deadLetters := map[string]bool{}
			h := handlerFor(t, p, Config{
				LabelAttrs: []string{"key"},
				Line:       Line{Body: bodyLogfmt},
				Limits:     Limits{MaxAge: -1, MaxLabelValues: -1},
			}, forebay.WhenFull("block"), forebay.Delivery(func(o *deliver.OutputOptions) {
				o.Deliver.Retry = &deliver.RetryOptions{MaxAge: -1}
				o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
					mu.Lock()
					defer mu.Unlock()
					for _, rec := range b.All() {
						deadLetters[lineID(string(b.Codec.AppendJSON(nil, rec.Data, rec.Meta)))] = true
					}
					return batch.Outcome{}
				})
			}))
			keys, n := 8+rng.IntN(8), 0
			burst := false
			ago := make([]time.Duration, 64) // by key: age of its records
			put := func(key int, size int) {
				at := time.Now().Add(time.Duration(rng.IntN(int(time.Second))))
				if key%4 > 0 || rng.IntN(4) > 0 { // records of every fourth key are old or new
					at = at.Add(-ago[key])
				}
				r := slog.NewRecord(at, slog.LevelInfo, "m", 0)
				r.AddAttrs(slog.Int("key", key), slog.Int("id", n), slog.String("pad", strings.Repeat("x", size)))
				n++
				if err := h.Handle(context.Background(), r); err != nil {
					t.Fatal(err)
				}
			}
			for round := range 300 {
				key := rng.IntN(keys)
				switch rng.IntN(25) {
				case 0: // add a key
					keys = min(keys+1, len(ago))
				case 1: // change the age of the records of a key
					ago[key] = []time.Duration{0, 0, 10 * time.Minute, 50 * time.Minute, 2 * time.Hour, 30 * time.Hour}[rng.IntN(6)]
				case 2: // one burst of records
					for i := 0; i < 180 && !burst && round > 50; i++ {
						if put(key, 100<<10); i%5 == 0 {
							put((key+1)%keys, 10)
						}
					}
					burst = burst || round > 50
				case 3: // send nothing for some time
					time.Sleep(time.Duration(rng.IntN(90)) * time.Minute)
				case 4: // another process writes new records to the same streams
					time.Sleep(oldConfirmedPeriod + defaultBatchAge)
					l.mu.Lock()
					for _, st := range l.streams {
						st.newest = time.Now()
					}
					l.mu.Unlock()
				}
				for range 1 + rng.IntN(25) {
					put(rng.IntN(keys), rng.IntN(100))
				}
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			}
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			rep, _ := h.Close(t.Context())
			mu.Lock()
			defer mu.Unlock()
			missing := 0
			for i := range n {
				if id := fmt.Sprint(i); !l.stored[id] && !deadLetters[id] {
					missing++
				}
			}
			if missing > 0 || rep.Delivered+rep.Dropped[batch.Poison] != uint64(n) {
				t.Errorf("seed %d, walk %d: %d of %d records are neither stored nor dead letters: %v", seed, walk, missing, n, rep)
			}
			many := 0
			for _, r := range p.requests() {
				if len(r.streams) > 1 {
					many++
				}
			}
			t.Logf("%d records, %d streams; %d requests, %d of them with several streams; refused %v", n, l.most, len(p.requests()), many, l.refused)
		})
	}
}
