package deliver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// moves counts the transitions that occurred, by state machine.
type moves struct {
	mu   sync.Mutex // guards seen while worlds are merged
	seen [4][8][8]int
}

// add counts a transition. It does nothing if s is nil.
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

// names are the names of the states in the diagrams of closing.go, inflight.go, entry.go and
// poison.Phase.
var names = [4][]string{
	aStage:   {"running", "closing", "late", "over", "ended"},
	aSession: {"none", "opening", "live", "leaving", "lost", "ending"},
	anEntry:  {"waiting", "sent", "offered", "parked", "gone"},
	aPhase:   {"Usual", "Pieces", "Server", "Stream", "Alone"},
}

// drawn are the transitions in these diagrams.
var drawn = [4][]string{
	aStage: {"running -> closing", "closing -> late", "closing -> ended", "late -> over", "late -> ended", "over -> ended"},
	aSession: {
		"none -> opening", "opening -> live", "opening -> ending", "opening -> lost", "live -> leaving", "live -> lost",
		"leaving -> lost", "lost -> ending", "lost -> none", "ending -> none",
	},
	anEntry: {
		"waiting -> sent", "waiting -> offered", "waiting -> parked", "waiting -> gone",
		"sent -> waiting", "sent -> parked", "sent -> gone",
		"offered -> waiting", "offered -> parked", "offered -> gone",
		"parked -> waiting", "parked -> sent", "parked -> offered", "parked -> gone",
		"gone -> sent",
	},
	aPhase: {
		"Usual -> Pieces", "Usual -> Server", "Usual -> Stream",
		"Pieces -> Usual", "Pieces -> Server", "Pieces -> Stream", "Pieces -> Alone",
		"Server -> Stream", "Server -> Alone", "Stream -> Alone",
		"Server -> Usual", "Stream -> Usual", "Alone -> Usual",
		"Server -> Pieces", "Stream -> Pieces", "Alone -> Pieces",
	},
}

// check fails the test if a transition occurred that is not in the diagrams or, if all is true, if
// one in the diagrams did not occur.
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
