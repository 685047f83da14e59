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

// OpenFiles is the same as [ListenConfig.OpenFiles].
func (n *Listen) OpenFiles(prefix string) []string { return n.c.OpenFiles(prefix) }

// A listenSource passes the records of a listener to the outputs. The listener calls Put and Commit
// on many goroutines.
type listenSource struct {
	in   *intake.Inlet
	r    *Receiver
	free chan *ListenIntake // intakes that are not in use

	once sync.Once
	quit chan struct{} // closed by Stop
}

// A ListenIntake is an intake with buffers for one record.
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
	reporter := &Reporter{say: func(text string) { in.Env.Console.Say("input %s: %s", in.Name, text) }}
	s.r = &Receiver{C: k.c, Sink: s, Reporter: reporter}
	if err := s.r.Listen(); err != nil {
		s.r.Close(context.Background())
		return nil, exit.Config(err)
	}
	return s, nil
}

// Run waits for Stop and closes the listener. It returns when all received messages are answered,
// or when the drain timeout is over.
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

// Put passes a record to all outputs.
func (s *listenSource) Put(ctx context.Context, r *listen.Record) error {
	var li *ListenIntake
	select {
	case li = <-s.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.free <- li }()
	li.Begin()
	defer li.End()
	s.in.Records.Add(1)
	s.in.Bytes.Add(uint64(len(r.Body)))
	if len(r.Body) > s.in.Env.MaxRecord {
		li.TooLong(0)
		return nil
	}
	li.text = append(append(li.text[:0], r.Body...), '\n')
	k := li.Hints(r)
	open := li.Line(li.text, intake.Place{}, &k)
	if cap(li.text) > intake.KeptText {
		li.text = nil
	}
	if !open {
		return net.ErrClosed
	}
	return nil
}

// Hints returns the data of a record that is not in its body: the time, the level and the fields.
func (li *ListenIntake) Hints(r *listen.Record) intake.Hints {
	k := intake.Hints{Time: r.Time, Attrs: li.attrs[:0]}
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
			if r.Source != lokipush.Source || !useLevel(&k, a) {
				k.Attrs = append(k.Attrs, slog.String(a.Name, a.Value))
			}
		}
	}
	li.attrs = k.Attrs
	return k
}

// useLevel sets k.Level if a, a label or metadata of a Loki record, contains the level. It returns
// false if a contains no level, or if an earlier label contains a different level.
func useLevel(k *intake.Hints, a listen.Label) bool {
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

// Commit waits until all outputs have delivered the records or written them to a spool. For syslog
// it does nothing, because the protocol has no acknowledgements.
func (s *listenSource) Commit(ctx context.Context) error {
	if !s.acks() {
		return nil
	}
	return s.in.Commit(ctx)
}

// acks reports whether the protocol has acknowledgements.
func (s *listenSource) acks() bool { return s.r.C.Listeners[0].Flag != "syslog" }
