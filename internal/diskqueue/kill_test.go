package diskqueue

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/spool"
)

// Environment variables of the child process that TestKill kills: the spool directory, the number
// of its first record, and the number of Appends after which it begins to read.
const (
	childEnv      = "FOREBAY_TEST_SPOOL_DIR"
	childFirstEnv = "FOREBAY_TEST_SPOOL_FIRST"
	childLagEnv   = "FOREBAY_TEST_SPOOL_LAG"
)

// childBatch returns the number of records in the batch that begins with record number first. The
// number of its first record therefore determines the whole batch.
func childBatch(first int) int { return 1 + first*31%37 }

// childMain appends batches until it is killed. Concurrently, it reads and acknowledges batches. It
// reports each step with one write to its standard output: "a first" after an Append has returned,
// and "d first" before an Ack. These lines survive the process, because they are in the pipe.
func childMain(dir string) int {
	fail := func(err error) int {
		fmt.Println("error", err)
		return 1
	}
	first, err := strconv.Atoi(os.Getenv(childFirstEnv))
	if err != nil {
		return fail(err)
	}
	lag, err := strconv.Atoi(os.Getenv(childLagEnv))
	if err != nil {
		return fail(err)
	}
	s, err := Open(dir, &spool.Options{SegmentBytes: 32 << 10})
	if err != nil {
		return fail(err)
	}
	appended := make(chan struct{}, 1)
	go func() {
		for range lag {
			<-appended
		}
		for {
			b, seq, err := s.Next()
			if errors.Is(err, io.EOF) {
				<-appended
				continue
			}
			if err != nil {
				os.Exit(fail(err))
			}
			ns, err := numbers(b, nil)
			if err != nil {
				os.Exit(fail(err))
			}
			fmt.Fprintf(os.Stdout, "d %d\n", ns[0])
			if ns[0]%3 == 0 {
				continue // not acknowledged alone: the next Ack includes this batch
			}
			if err := s.Ack(seq); err != nil {
				os.Exit(fail(err))
			}
		}
	}()
	for {
		n := childBatch(first)
		if _, err := s.Append(numbered(first, n, nil, nil)); err != nil {
			return fail(err)
		}
		fmt.Fprintf(os.Stdout, "a %d\n", first)
		first += n
		select {
		case appended <- struct{}{}:
		default:
		}
	}
}

// A process is killed at random times while it appends and replays. Each batch whose Append
// returned is delivered at least once, completely and in order. No other batch is delivered, except
// one whose Append was interrupted.
func TestKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGKILL on windows")
	}
	rounds := testkit.Rounds(t, 12, 3000)
	r := testSeed(t)
	dir := t.TempDir()
	var (
		first       = 1
		order       []int        // first records of all batches appended, in order
		interrupted = 0          // first record of the Append that the kill interrupted
		delivered   = -1         // index in order of the last delivered batch
		kept        map[int]bool // batches found on disk after the last kill
		torn        int
	)
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir, childFirstEnv+"="+strconv.Itoa(first), childLagEnv+"="+strconv.Itoa(max(0, r.Intn(300)-100)))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killAfter, lines, at := 1+r.Intn(250), 0, -1
		in := bufio.NewScanner(out)
		for in.Scan() {
			var op string
			var n int
			if _, err := fmt.Sscanf(in.Text(), "%s %d", &op, &n); err != nil || op != "a" && op != "d" {
				t.Fatalf("round %d: the child printed %q", round, in.Text())
			}
			if n == first { // its Append is reported, or it was delivered before that report
				order = append(order, n)
				first = n + childBatch(n)
			}
			if op == "d" {
				i := indexOf(order, n)
				switch {
				case i < 0:
					t.Fatalf("round %d: batch %d was not appended", round, n)
				case at >= 0 && i != at+1:
					t.Fatalf("round %d: batch %d delivered after %d", round, n, order[at])
				case at < 0 && i > delivered+1:
					t.Fatalf("round %d: batches from %d on were skipped", round, order[delivered+1])
				}
				at = i
				delivered = max(delivered, i)
			}
			if lines++; lines == killAfter {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // the error results from the kill

		l, err := List(dir, false)
		if err != nil || l.Damaged > 0 {
			t.Fatalf("round %d: damage %+v, %v", round, l, err)
		}
		for _, f := range l.Files {
			if f.Torn {
				torn++
			}
		}
		interrupted = first
		kept = map[int]bool{}
		last, n := 0, 0
		for e, err := range Scan(dir, nil) {
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			ns, err := numbers(e.Batch, nil)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if e.Acked {
				continue
			}
			if err := consecutive(ns, ns[0]); err != nil || len(ns) != childBatch(ns[0]) || ns[0] <= last {
				t.Fatalf("round %d: batch of %v after %d: %v", round, ns, last, err)
			}
			last = ns[0]
			if last == interrupted { // stored although its Append did not return
				order = append(order, interrupted)
				first = interrupted + childBatch(interrupted)
			}
			kept[last] = true
			n++
		}
		for i := delivered + 1; i < len(order); i++ {
			if !kept[order[i]] {
				t.Fatalf("round %d: batch %d was not delivered and is lost", round, order[i])
			}
		}
		if n != len(kept) {
			t.Fatalf("round %d: %d batches, %d of them different", round, n, len(kept))
		}
		if n < 500 && round < rounds-1 {
			continue
		}
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		rest := drain(t, s, true)
		i := len(order) - 1
		if delivered < i && (len(rest) == 0 || rest[len(rest)-1] != order[i]+childBatch(order[i])-1) {
			t.Fatalf("round %d: the last batch is %d, but it is not the last one in the spool", round, order[i])
		}
		delivered = i
		if st := s.Stats(); st.Corrupt != 0 {
			t.Fatalf("round %d: damage %+v", round, st)
		}
		mustClose(t, s)
	}
	t.Logf("%d kills, %d torn frames, %d batches", rounds, torn, len(order))
}

// indexOf returns the index of n in an ascending list, or -1.
func indexOf(list []int, n int) int {
	for i := len(list) - 1; i >= 0 && list[i] >= n; i-- {
		if list[i] == n {
			return i
		}
	}
	return -1
}
