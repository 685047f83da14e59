package harness

import "sync"

// ByMany divides the operations of c among several goroutines. It is for rows that compare numbers
// of goroutines, which must have Row.Goroutines 1.
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

// share returns how many of n operations worker g executes.
func share(n, workers, g int) int {
	part := n / workers
	if g < n%workers {
		part++
	}
	return part
}
