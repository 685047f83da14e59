package input

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/lokipush"
	"github.com/forebay-log/forebay/internal/record"
)

// Listen is an input that receives records from clients over the network.
type Listen struct {
	L *Listener
	c *ListenConfig
}

// A listenSource receives the records of a listener, from many goroutines.
type listenSource struct {
	in   *intake.Inlet
	r    *Receiver
	free chan *ListenIntake // unused intakes

	once sync.Once
	quit chan struct{} // closed by Stop
}

// A ListenIntake is an intake with the data of the record that it accepts.
type ListenIntake struct {
	*intake.Intake
	text  []byte
	attrs []slog.Attr
}

func (k *Listen) Open(in *intake.Inlet) (Source, error) {
	s := &listenSource{in: in, quit: make(chan struct{}), free: make(chan *ListenIntake, 2*runtime.GOMAXPROCS(0))}
	for range cap(s.free) {
		s.free <- &ListenIntake{Intake: in.NewIntake()}
	}
	said := &sayer{say: func(text string) { in.Env.Console.Say("input %s: %s", in.Name, text) }}
	s.r = &Receiver{C: k.c, Sink: s, Said: said}
	if err := s.r.Listen(); err != nil {
		s.r.Close(context.Background())
		return nil, exit.Config(err)
	}
	return s, nil
}

// Run waits until Stop, and then until the received messages are answered.
func (s *listenSource) Run() error {
	<-s.quit
	ctx, cancel := context.WithTimeout(context.Background(), s.in.Env.DrainTimeout)
	defer cancel()
	s.r.Close(ctx)
	return nil
}

func (s *listenSource) Stop()           { s.once.Do(func() { close(s.quit) }) }
func (*listenSource) Finish(bool) error { return nil }
func (s *listenSource) Close()          { s.r.Close(context.Background()) }
func (s *listenSource) Repeats() string {
	if !s.acks() {
		return ""
	}
	return "clients of " + s.in.Name + " got no acknowledgement and send them again"
}

// Put passes a record to every output.
func (s *listenSource) Put(ctx context.Context, r *listen.Record) error {
	var take *ListenIntake
	select {
	case take = <-s.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.free <- take }()
	take.Mu.Lock()
	defer take.Mu.Unlock()
	s.in.Records.Add(1)
	s.in.Bytes.Add(uint64(len(r.Body)))
	if len(r.Body) > s.in.Env.MaxRecord {
		take.TooLong(0)
		return nil
	}
	take.text = append(append(take.text[:0], r.Body...), '\n')
	open := take.Line(take.text, intake.Place{}, take.About(r))
	take.Publish()
	if cap(take.text) > intake.KeptText {
		take.text = nil
	}
	if !open {
		return net.ErrClosed
	}
	return nil
}

// About returns the fields that the protocol provides for a record.
func (take *ListenIntake) About(r *listen.Record) intake.Hints {
	k := intake.Hints{Time: r.Time, Attrs: take.attrs[:0]}
	if r.HasLevel {
		k.Level = &r.Level
	}
	for _, a := range [...]listen.Label{{Name: "tag", Value: r.Tag}, {Name: "tenant", Value: r.Tenant}} {
		if a.Value != "" {
			k.Attrs = append(k.Attrs, slog.String(a.Name, a.Value))
		}
	}
	for _, set := range [...][]listen.Label{r.Labels, r.Metadata} {
		for _, a := range set {
			if r.Source != lokipush.Source || !takeLevel(&k, a) {
				k.Attrs = append(k.Attrs, slog.String(a.Name, a.Value))
			}
		}
	}
	take.attrs = k.Attrs
	return k
}

// takeLevel uses a label, or structured metadata, of Loki as the level of the record, because Loki
// has no other field for it, and reports whether it did. Only the first level is used; others
// remain fields.
func takeLevel(k *intake.Hints, a listen.Label) bool {
	if a.Name != "level" && a.Name != "detected_level" {
		return false
	}
	l, err := record.ParseLevel(a.Value)
	if err != nil || k.Level != nil && *k.Level != l {
		return false
	}
	k.Level = &l
	return true
}

// Commit waits until the outputs have the records. Syslog has no acknowledgements, so its messages
// may wait in memory.
func (s *listenSource) Commit(ctx context.Context) error {
	if !s.acks() {
		return nil
	}
	return s.in.Commit(ctx)
}

// acks reports whether clients receive an acknowledgement for delivered records.
func (s *listenSource) acks() bool { return s.r.C.Listeners[0].Flag != "syslog" }
