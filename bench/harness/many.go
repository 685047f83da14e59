package harness

import "sync"

// ByMany divides the work of c among goroutines, for rows that compare their number. Row.Goroutines
// must be 1.
func ByMany(c Contender, goroutines int) Contender {
	mk := c.New
	c.New = func(env *Env) (*Subject, error) {
		s, err := mk(env)
		if err != nil {
			return nil, err
		}
		run := s.Run
		s.Run = func(_, n int) {
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() { run(g, share(n, goroutines, g)) })
			}
			wg.Wait()
		}
		return s, nil
	}
	return c
}

// share is worker g's part of n operations.
func share(n, workers, g int) int {
	part := n / workers
	if g < n%workers {
		part++
	}
	return part
}
