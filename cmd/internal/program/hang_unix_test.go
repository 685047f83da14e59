//go:build unix

package program

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/deliver"
)

// A slowReopen is a file destination. Its Reopen sends a value to the channel entered, and returns
// the error that it receives from the channel result.
type slowReopen struct {
	path    string
	entered chan struct{}
	result  chan error
}

func (*slowReopen) Scheme() string             { return "slow" }
func (*slowReopen) Usage() (form, what string) { return "slow:", "a file" }
func (*slowReopen) Flags(*cobra.Command)       {}
func (d *slowReopen) Open(string, *dest.Spec) (*dest.Target, error) {
	f, err := os.Create(d.path)
	return &dest.Target{Dest: deliver.ToWriteCloser(f), Reopen: func() error {
		d.entered <- struct{}{}
		return <-d.result
	}}, err
}

// While reopening a file blocks, the other files are reopened, and the program can end. The file is
// reopened once more for requests that arrived in the meantime.
func TestBlockedReopenDelaysNothing(t *testing.T) {
	hup := make(chan os.Signal, 1) // without this channel, the signal would kill the test
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	dir := t.TempDir()
	stuck := &slowReopen{filepath.Join(dir, "stuck"), make(chan struct{}), make(chan error)}
	other := filepath.Join(dir, "other")
	c := newConfig("slow:", "file:"+other)
	c.Dests = append(c.Dests, stuck)
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer in.Close()
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	ended := make(chan error, 1)
	go func() { ended <- run.RunPipe(c, stdin, stderr) }()
	in.WriteString("one\n")
	await(t, other, "one\n") // the program is running now

	hangup := func() { syscall.Kill(os.Getpid(), syscall.SIGHUP) }
	for i := range 2 {
		if err := os.Rename(other, other+".old"); err != nil {
			t.Fatal(err)
		}
		hangup()
		await(t, other, "")
		if i == 0 { // wait until Reopen was called, because requests before that are combined
			<-stuck.entered
		}
	}
	stuck.result <- errors.New("no luck")
	<-stuck.entered // Reopen is called again for the second request
	in.WriteString("two\n")
	in.Close()
	select {
	case err = <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the program does not end")
		stuck.result <- nil
		err = <-ended
	}
	close(stuck.result)
	messages, _ := os.ReadFile(stderr.Name())
	if err != nil {
		t.Errorf("%v, %s", err, messages)
	}
	wantMatch(t, string(messages), `^forebay: no luck$`)
	await(t, other, "two\n")
	await(t, stuck.path, "one\ntwo\n")
}

// If SIGHUP arrives while the program opens its destinations, the program opens all of them and
// then reopens the files.
func TestHupWhileOpening(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	d := &slowReopen{filepath.Join(t.TempDir(), "x"), make(chan struct{}), make(chan error)}
	close(d.result)
	c := newConfig("slow:")
	c.Dests = append(c.Dests, d, hupOpen{hup})
	c.To = append(c.To, "hup:")
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer in.Close()
	ended := make(chan error, 1)
	go func() { ended <- run.RunPipe(c, stdin, os.Stderr) }()
	select {
	case <-d.entered:
	case <-time.After(10 * time.Second):
		t.Error("the file is not reopened within 10 s")
	}
	in.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// hupOpen is a destination. Its Open sends SIGHUP to the process and waits until the signal has
// arrived.
type hupOpen struct{ arrived chan os.Signal }

func (hupOpen) Scheme() string             { return "hup" }
func (hupOpen) Usage() (form, what string) { return "hup:", "nowhere" }
func (hupOpen) Flags(*cobra.Command)       {}
func (d hupOpen) Open(string, *dest.Spec) (*dest.Target, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		return nil, err
	}
	<-d.arrived
	f, err := os.Open(os.DevNull)
	return &dest.Target{Dest: deliver.ToWriteCloser(f)}, err
}

// A signal ends the program even if writes to standard error block. Everything is delivered, and
// only the summary is missing.
func TestStuckStandardError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	p := startWith(t, func(p *child, cmd *exec.Cmd) {
		pipe := p.pipe()
		fd := int(pipe[1].Fd())
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil {
			_, err = unix.Write(fd, []byte{'x'})
		}
		if err := unix.SetNonblock(fd, false); err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = pipe[1]
	}, "pipe", "--to", "file:"+path)
	p.write("one\n")
	p.in.Close()
	await(t, path, "one\n")
	var signals sync.WaitGroup
	ended := make(chan struct{})
	signals.Go(func() { // repeated signals within SameSignal do not abort the delivery
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.cmd.Process.Signal(syscall.SIGTERM)
			case <-ended:
				return
			}
		}
	})
	code, _ := p.wait()
	close(ended)
	signals.Wait()
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}
