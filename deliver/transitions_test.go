package deliver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// transitions counts the transitions that occurred, for each state machine.
type transitions struct {
	mu   sync.Mutex // guards seen while the counts of several simulations are merged
	seen [4][8][8]int
}

// add counts a transition. It does nothing if s is nil.
func (s *transitions) add(of stateKind, from, to uint8) {
	if s != nil {
		s.seen[of][from][to]++
	}
}

func (s *transitions) merge(o *transitions) {
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

// names contains the names of the states. The diagrams of the states are in stage.go, inflight.go,
// entry.go and at poison.Phase.
var names = [4][]string{
	stageKind:   {"running", "closing", "late", "over", "ended"},
	sessionKind: {"none", "opening", "live", "leaving", "lost", "ending"},
	entryKind:   {"waiting", "sent", "offered", "removed"},
	phaseKind:   {"Usual", "Pieces", "Server", "Stream", "Alone"},
}

// diagrams contains the transitions that are drawn in stage.go, inflight.go, entry.go and at
// poison.Phase.
var diagrams = [4][]string{
	stageKind: {"running -> closing", "closing -> late", "closing -> ended", "late -> over", "late -> ended", "over -> ended"},
	sessionKind: {
		"none -> opening", "opening -> live", "opening -> ending", "opening -> lost", "live -> leaving", "live -> lost",
		"leaving -> lost", "lost -> ending", "lost -> none", "ending -> none",
	},
	entryKind: {
		"waiting -> sent", "waiting -> offered", "waiting -> removed",
		"sent -> waiting", "sent -> removed",
		"offered -> waiting", "offered -> removed",
	},
	phaseKind: {
		"Usual -> Pieces", "Usual -> Server", "Usual -> Stream",
		"Pieces -> Usual", "Pieces -> Server", "Pieces -> Stream", "Pieces -> Alone",
		"Server -> Stream", "Server -> Alone", "Stream -> Alone",
		"Server -> Usual", "Stream -> Usual", "Alone -> Usual",
		"Server -> Pieces", "Stream -> Pieces", "Alone -> Pieces",
	},
}

// check fails the test if a transition occurred that is not in the diagrams. If all is true, it
// also fails if a transition in the diagrams did not occur.
func (s *transitions) check(t *testing.T, all bool) {
	t.Helper()
	for of := range s.seen {
		for from := range names[of] {
			for to := range names[of] {
				transition := fmt.Sprintf("%s -> %s", names[of][from], names[of][to])
				isInDiagram := slices.Contains(diagrams[of], transition)
				switch n := s.seen[of][from][to]; {
				case n > 0 && !isInDiagram:
					t.Errorf("%s occurred %d times and is not in the diagrams", transition, n)
				case n == 0 && isInDiagram && all:
					t.Errorf("%s is in the diagrams and did not occur", transition)
				}
			}
		}
	}
}
