package deliver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// moves is which ways from one state to another were taken.
type moves struct {
	mu   sync.Mutex // guards the rest while worlds are merged
	seen [4][8][8]int
}

// add notes a way. A nil moves notes nothing.
func (s *moves) add(of moving, from, to uint8) {
	if s != nil {
		s.seen[of][from][to]++
	}
}

func (s *moves) merge(o *moves) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.seen {
		for from := range s.seen[of] {
			for to, n := range o.seen[of][from] {
				s.seen[of][from][to] += n
			}
		}
	}
}

// names are the states as the drawings in machine.go and trial.go have them.
var names = [4][]string{
	aStage:   {"running", "closing", "late", "over", "ended"},
	aSession: {"none", "opening", "live", "leaving", "lost", "ending"},
	anEntry:  {"waiting", "sent", "offered", "passed", "apart", "gone"},
	aRound:   {"noRound", "asksServer", "asksStream", "asksSuspect"},
}

// drawn are the arrows of these drawings.
var drawn = [4][]string{
	aStage: {"running -> closing", "closing -> late", "closing -> ended", "late -> over", "late -> ended", "over -> ended"},
	aSession: {
		"none -> opening", "opening -> live", "opening -> ending", "opening -> lost", "live -> leaving", "live -> lost",
		"leaving -> lost", "lost -> ending", "lost -> none", "ending -> none",
	},
	anEntry: {
		"waiting -> sent", "waiting -> offered", "waiting -> passed", "waiting -> apart", "waiting -> gone",
		"sent -> waiting", "sent -> apart", "sent -> gone",
		"offered -> waiting", "offered -> apart", "offered -> gone",
		"passed -> waiting", "passed -> apart", "passed -> offered", "passed -> gone", "offered -> passed",
		"apart -> waiting", "apart -> sent", "apart -> offered", "apart -> gone",
		"gone -> sent",
	},
	aRound: {
		"noRound -> asksServer", "noRound -> asksStream", "asksServer -> asksStream", "asksServer -> asksSuspect", "asksStream -> asksSuspect",
		"asksServer -> noRound", "asksStream -> noRound", "asksSuspect -> noRound",
	},
}

// check compares what was seen with the drawings: no way that is not drawn and, if all is
// true, no arrow that nothing takes.
func (s *moves) check(t *testing.T, all bool) {
	t.Helper()
	for of := range s.seen {
		for from := range names[of] {
			for to := range names[of] {
				way := fmt.Sprintf("%s -> %s", names[of][from], names[of][to])
				isDrawn := slices.Contains(drawn[of], way)
				switch n := s.seen[of][from][to]; {
				case n > 0 && !isDrawn:
					t.Errorf("%s is not drawn (%d times)", way, n)
				case n == 0 && isDrawn && all:
					t.Errorf("%s is drawn, and nothing takes it", way)
				}
			}
		}
	}
}
