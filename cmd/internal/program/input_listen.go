package program

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/lokipush"
	"github.com/forebay-log/forebay/internal/record"
)

// listenInput is a listener for the protocol of another program.
type listenInput struct {
	l *listener
	c *receiveConfig
}

// A listenSource is the sink of a listener. Its lines come on many goroutines.
type listenSource struct {
	in   *inlet
	r    *receiver
	free chan *listenIntake // those that nobody uses

	once sync.Once
	quit chan struct{} // closed by stop
}

// A listenIntake is an intake, and what the record that it takes is made of.
type listenIntake struct {
	*intake
	text  []byte
	attrs []slog.Attr
}

func (k *listenInput) open(in *inlet) (source, error) {
	s := &listenSource{in: in, quit: make(chan struct{}), free: make(chan *listenIntake, 2*runtime.GOMAXPROCS(0))}
	for range cap(s.free) {
		s.free <- &listenIntake{intake: in.newIntake()}
	}
	said := &sayer{say: func(text string) { in.p.con.Say("input %s: %s", in.name, text) }}
	s.r = &receiver{c: k.c, sink: s, said: said}
	if err := s.r.listen(); err != nil {
		s.r.close(context.Background())
		return nil, exit.Config(err)
	}
	return s, nil
}

// read waits until stop, and then until what had come is answered.
func (s *listenSource) read() error {
	<-s.quit
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.in.p.c.drainTimeout))
	defer cancel()
	s.r.close(ctx)
	return nil
}

func (s *listenSource) stop()           { s.once.Do(func() { close(s.quit) }) }
func (*listenSource) finish(bool) error { return nil }
func (s *listenSource) close()          { s.r.close(context.Background()) }
func (s *listenSource) readsAgain() string {
	if !s.acks() {
		return ""
	}
	return "clients of " + s.in.name + " got no acknowledgement and send them again"
}

// Put puts a record into every output.
func (s *listenSource) Put(ctx context.Context, r *listen.Record) error {
	var take *listenIntake
	select {
	case take = <-s.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.free <- take }()
	take.mu.Lock()
	defer take.mu.Unlock()
	s.in.records.Add(1)
	s.in.bytes.Add(uint64(len(r.Body)))
	if len(r.Body) > int(s.in.p.c.maxRecord.Value) {
		take.tooLong(0)
		return nil
	}
	take.text = append(append(take.text[:0], r.Body...), '\n')
	open := take.line(take.text, place{}, take.about(r))
	take.publish()
	if cap(take.text) > keptText {
		take.text = nil
	}
	if !open {
		return net.ErrClosed
	}
	return nil
}

// keptText is how much memory for its text an intake keeps.
const keptText = 64 << 10

// about returns what the protocol says of a record.
func (take *listenIntake) about(r *listen.Record) known {
	k := known{at: r.Time, attrs: take.attrs[:0]}
	if r.HasLevel {
		k.level = &r.Level
	}
	for _, a := range [...]listen.Label{{Name: "tag", Value: r.Tag}, {Name: "tenant", Value: r.Tenant}} {
		if a.Value != "" {
			k.attrs = append(k.attrs, slog.String(a.Name, a.Value))
		}
	}
	for _, set := range [...][]listen.Label{r.Labels, r.Metadata} {
		for _, a := range set {
			if r.Source != lokipush.Source || !k.takeLevel(a) {
				k.attrs = append(k.attrs, slog.String(a.Name, a.Value))
			}
		}
	}
	take.attrs = k.attrs
	return k
}

// takeLevel reports whether a label, or structured metadata, of Loki is the level of the
// record: Loki has no other place for it. Where they name several levels the first one is
// it, and the others stay fields.
func (k *known) takeLevel(a listen.Label) bool {
	if a.Name != "level" && a.Name != "detected_level" {
		return false
	}
	l, err := record.ParseLevel(a.Value)
	if err != nil || k.level != nil && *k.level != l {
		return false
	}
	k.level = &l
	return true
}

// Commit waits until the outputs have what was put. Peers of syslog are told nothing: what
// they send may wait in memory.
func (s *listenSource) Commit(ctx context.Context) error {
	if !s.acks() {
		return nil
	}
	return s.in.commit(ctx)
}

// acks reports whether peers are told that their records are safe.
func (s *listenSource) acks() bool { return s.r.c.listeners[0].flag != "syslog" }
