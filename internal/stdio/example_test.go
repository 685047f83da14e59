package stdio_test

import (
	"fmt"
	"os"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/stdio"
)

// Lines on standard output do not mix with lines of other processes.
func ExampleNew() {
	s := stdio.New(os.Stdout, "stdout")
	if err := s.Check(); err != nil {
		fmt.Println(err) // closed, or open for reading only
		return
	}
	w, err := deliver.NewOutput(s, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprintln(w, "one line")
	w.Close()
	// Output: one line
}
