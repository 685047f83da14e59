package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
)

// withMore returns the destination and the input that the program forebay-more has for scripts. The
// destination queue://HOST/NAME prints records to standard output. The input with the type queue
// returns the lines in its option "lines", and reports commits.
func withMore() With {
	return With{
		Destinations: []dest.Extension{{
			Name: "queue", Form: "HOST:PORT/PATH", What: "a queue; see --ink",
			Options: []setting.Custom{{Name: "user"}, {Name: "password-file"}, {Name: "ink", Usage: "the colour", Choices: []string{"blue", "red"}}, {Name: "wet", Switch: true}},
			Open: func(t *setting.Args) (deliver.Destination, error) {
				if t.Text("ink") == "red" && t.On("wet") {
					return nil, errors.New("--ink red and --wet do not go together")
				}
				return deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
					out := os.Stdout
					if t.DryRun != nil {
						fmt.Fprint(out, "would send: ")
					}
					for _, r := range b.All() {
						fmt.Fprintf(out, "%s %s %q %v %s", t.Rest, t.Text("ink"), t.User+":"+t.Password, t.TLS != nil, r.Data)
					}
					return batch.Outcome{}
				}), nil
			},
		}},
		Inputs: []input.Extension{{
			Name:    "queue",
			Options: []setting.Custom{{Name: "lines", List: true, Usage: "the lines"}, {Name: "user"}, {Name: "password-file"}},
			Open: func(t *setting.Args, to *input.Sink) (input.Reader, error) {
				if len(t.List("lines")) == 0 {
					return nil, errors.New("--lines is missing: name the lines")
				}
				return &queue{t.List("lines"), to, make(chan struct{}), sync.Once{}}, nil
			},
		}},
	}
}

type queue struct {
	lines []string
	to    *input.Sink
	stop  chan struct{}
	once  sync.Once
}

func (q *queue) Run() error {
	for _, l := range q.lines {
		if err := q.to.Put(&input.Record{Body: []byte(l)}); err != nil {
			return err
		}
	}
	q.to.Say("committed: %v", q.to.Commit(context.Background()))
	return nil
}

func (q *queue) Stop() { q.once.Do(func() { close(q.stop) }) }

func (q *queue) Close(delivered bool) error {
	q.to.Say("closed, delivered: %v", delivered)
	return nil
}
