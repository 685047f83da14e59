package fluent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
)

// Elsewhere returns a contender that the command ibm measures: in a process of its
// own, with a receiver of its own, by the same code.
func Elsewhere(r Rival, s Setup) h.Contender {
	return h.Contender{Name: r.Name, Kind: h.Rival, Note: r.Note + "; in a process of its own", Sample: func(env *h.Env) (*h.Sample, error) {
		return ibm.sample(request{r.Name, s, env.Benchtime, env.Quick})
	}}
}

type request struct {
	Name      string
	Setup     Setup
	Benchtime time.Duration
	Quick     bool
}

type answer struct {
	Sample *h.Sample
	Error  string
}

// elsewhere is the other process. It ends with this one.
type elsewhere struct {
	mu  sync.Mutex
	in  io.Writer
	out *json.Decoder
	err error
}

var ibm elsewhere

func (e *elsewhere) sample(r request) (*h.Sample, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in == nil && e.err == nil {
		e.err = e.start()
	}
	if e.err != nil {
		return nil, e.err
	}
	var a answer
	if e.err = json.NewEncoder(e.in).Encode(r); e.err == nil {
		e.err = e.out.Decode(&a)
	}
	switch {
	case e.err != nil:
		return nil, fmt.Errorf("the other process: %w", e.err)
	case a.Error != "":
		return nil, errors.New(a.Error)
	}
	return a.Sample, nil
}

// start builds the command and starts it.
func (e *elsewhere) start() error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("cannot find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "forebay-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // what runs stays
	bin := filepath.Join(dir, "ibm")
	build := exec.Command("go", "build", "-o", bin, "./fluent/ibm")
	build.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build: %w: %s", err, out)
	}
	cmd := exec.Command(bin)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	e.in, e.out = in, json.NewDecoder(bufio.NewReader(out))
	return cmd.Start()
}

// Serve measures what it is asked for on in until that ends.
func Serve(in io.Reader, out io.Writer, rivals []Rival) error {
	enc := json.NewEncoder(out)
	for dec := json.NewDecoder(in); ; {
		var r request
		if err := dec.Decode(&r); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		var a answer
		s, err := r.measure(rivals)
		if a.Sample = s; err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

func (r *request) measure(rivals []Rival) (*h.Sample, error) {
	for _, rival := range rivals {
		if rival.Name != r.Name {
			continue
		}
		c := r.Setup.Contender(r.Name, h.Rival, "", rival.New)
		if c.Sample != nil {
			return c.Sample(&h.Env{Benchtime: r.Benchtime, Quick: r.Quick})
		}
		maxOps := r.Setup.MaxOps
		if r.Quick {
			maxOps = 100
		}
		res, err := h.Run(h.Row{
			Name: r.Name, Goroutines: r.Setup.Workers, MaxOps: maxOps, Contenders: []h.Contender{c},
			Verdict: func(*h.Result) []h.Check { return nil },
		}, h.Options{Count: 1, Benchtime: r.Benchtime})
		if err != nil {
			return nil, err
		}
		col := &res.Columns[0]
		if col.Error != "" {
			return nil, errors.New(col.Error)
		}
		return &h.Sample{
			Value: col.Values[0], Ops: 1, CPU: col.CPU, Allocs: col.Allocs, AllocBytes: col.AllocBytes, RecordBytes: col.RecordBytes, More: col.More,
		}, nil
	}
	return nil, fmt.Errorf("nobody is called %q", r.Name)
}
