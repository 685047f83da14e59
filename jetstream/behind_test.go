package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// A fakeLife is a deliver.Life that passes the answers to a channel.
type fakeLife struct {
	ctx     context.Context
	answers chan batch.Outcome
}

func (l *fakeLife) Context() context.Context               { return l.ctx }
func (l *fakeLife) Answer(_ *batch.Batch, o batch.Outcome) { l.answers <- o }
func (l *fakeLife) End(error)                              {}

// After an answer by which some records must be sent again, Send stores nothing until the outlet
// has read that answer. Otherwise later records would be stored before those records.
func TestSendDoesNotStoreRecordsAfterOpenOnes(t *testing.T) {
	for _, sole := range []bool{false, true} {
		n := start(t, nil)
		d, err := New(Config{Servers: n.ClientURL(), Sole: sole})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l := &fakeLife{ctx, make(chan batch.Outcome, 10)}
		s, err := d.Open(l)
		if err != nil {
			t.Fatal(err)
		}
		send := func(from, to int) batch.Outcome {
			t.Helper()
			one := &batch.Batch{Codec: encode.JSON(nil).Codec(), Origin: [16]byte{1}}
			for i := from; i < to; i++ {
				one.Append([]byte(line(i)+"\n"), uint64(i+1), batch.Meta{})
			}
			if err := s.Send(one); err != nil {
				t.Fatal(err)
			}
			select {
			case o := <-l.answers:
				return o
			case <-time.After(time.Minute):
				t.Fatal("no answer")
				return batch.Outcome{}
			}
		}
		if o := send(0, 3); o.Open.Len(3) != 3 {
			t.Errorf("without a stream: %+v", o)
		}
		str := stream(t, admin(t, n), nil)
		if o := send(3, 6); o.Open.Len(3) != 3 {
			t.Errorf("after open records: %+v", o)
		}
		for _, from := range []int{0, 3} {
			if o := send(from, from+3); !o.Open.Empty() || !o.Refused.Empty() {
				t.Errorf("from %d: %+v", from, o)
			}
		}
		wantCount(t, numbers(t, all(t, str)), 6)
		cancel()
		s.Close()
	}
}
