package forebay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/vfs"
)

// defaultExitTimeout limits the time [Exit] waits for routers to close.
const defaultExitTimeout = closetime.Default

// exitList holds the cores of the routers that Exit closes: routers made with [CloseOnExit] and not
// yet closed.
var exitList registry

// A registry is a set of cores. It is safe for concurrent use.
type registry struct {
	mu    sync.Mutex
	cores map[*core]struct{}
}

// add adds c. The registry keeps c in memory until c is removed.
func (l *registry) add(c *core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cores == nil {
		l.cores = map[*core]struct{}{}
	}
	l.cores[c] = struct{}{}
}

// remove removes c, if it is present.
func (l *registry) remove(c *core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cores, c)
}

// list returns the cores in no particular order.
func (l *registry) list() (cs []*core) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.cores {
		cs = append(cs, c)
	}
	return cs
}

// osExit is replaced in tests.
var osExit = os.Exit

// Exit closes all routers made with [CloseOnExit] concurrently, within 5 s, and then exits the
// program with the given code. Calling os.Exit or log.Fatal directly would lose the records still
// in buffered outputs. Exit writes the errors of [Router.Close] to standard error.
func Exit(code int) {
	ctx, cancel := context.WithTimeout(context.Background(), defaultExitTimeout)
	defer cancel()
	if err := closeAll(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "forebay: exit: %v\n", err)
	}
	osExit(code)
}

// closeAll closes all routers of exitList concurrently and joins the errors.
func closeAll(ctx context.Context) error {
	cores := exitList.list()
	errs := make([]error, len(cores))
	var wg sync.WaitGroup
	for i, c := range cores {
		wg.Go(func() {
			r := &Router{h: handler{core: c}}
			_, errs[i] = r.Close(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// CrashOutput makes the runtime append the report of a crash (an unrecovered panic or a fatal
// error) to the named file, in addition to standard error. The file is created with mode 0600.
// Records in buffered outputs are lost in such a crash, unless the outputs are crash-safe; see
// [CrashSafe].
func CrashOutput(name string) error {
	f, err := vfs.OpenAppend(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("forebay: cannot open crash output: %w", err)
	}
	defer f.Close() // SetCrashOutput duplicates the descriptor
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return fmt.Errorf("forebay: cannot set crash output: %w", err)
	}
	return nil
}
