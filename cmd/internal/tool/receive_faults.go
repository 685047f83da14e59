package tool

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/units"
)

// Action returns the function that selects the reaction to each message. It returns nil if no
// faults are injected.
func (m *FaultInjection) Action() func(context.Context) listen.Action {
	if m.Stall == (Stall{}) && m.Reset == 0 && m.Reject == 0 {
		return nil
	}
	reset, reject := &Share{Of: float64(m.Reset)}, &Share{Of: float64(m.Reject)}
	return func(ctx context.Context) listen.Action {
		switch {
		case m.Stall.Forever:
			<-ctx.Done()
		case m.Stall.D > 0:
			pause(ctx, m.Stall.D)
		}
		switch {
		case reset.Next():
			return listen.Reset
		case reject.Next():
			return listen.Reject
		}
		return listen.Accept
	}
}

// pause waits for the duration d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// A Share selects a percentage of the chunks, evenly distributed.
type Share struct {
	Of float64 // percentage to select

	mu  sync.Mutex
	sum float64
}

// Next reports whether the next chunk is selected.
func (s *Share) Next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum += s.Of; s.sum < 100 {
		return false
	}
	s.sum -= 100
	return true
}

// A FaultInjection contains the values of the flags of forebay receive that inject faults.
type FaultInjection struct {
	Stall         Stall
	Reset, Reject percent
	slow          bytesPerSecond
}

// Stall is a flag whose value is a duration, or the word forever.
type Stall struct {
	D       time.Duration
	Forever bool
}

func (s *Stall) String() string {
	if s.Forever {
		return "forever"
	}
	return (*setting.Duration)(&s.D).String()
}
func (*Stall) Type() string { return "DURATION" }
func (s *Stall) Set(text string) (err error) {
	if s.Forever = text == "forever"; s.Forever {
		return nil
	}
	if s.D, err = units.ParseDuration(text); err != nil {
		return fmt.Errorf("%w, or forever", err)
	}
	return nil
}

// percent is a flag whose value is a number from 0 to 100.
type percent float64

func (p *percent) String() string { return strconv.FormatFloat(float64(*p), 'f', -1, 64) }
func (*percent) Type() string     { return "P" }
func (p *percent) Set(text string) error {
	f, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(f >= 0 && f <= 100) {
		return fmt.Errorf("%q is not a percentage: use 0 to 100", text)
	}
	*p = percent(f)
	return nil
}

// bytesPerSecond is a flag whose value is a number of bytes per second.
type bytesPerSecond int64

func (b *bytesPerSecond) String() string { return units.FlagSize(int64(*b)) }
func (*bytesPerSecond) Type() string     { return "SIZE" }
func (b *bytesPerSecond) Set(text string) error {
	n, err := units.ParseSize(strings.TrimSuffix(text, "/s"))
	if err == nil && (n < 1 || n > 1<<40) {
		err = fmt.Errorf("%s is out of range: use 1 byte to 1TiB per second", text)
	}
	*b = bytesPerSecond(n)
	return err
}
