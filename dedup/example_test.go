package dedup_test

import (
	"fmt"

	"github.com/forebay-log/forebay/dedup"
)

// A consumer skips records that it has received before.
func Example() {
	w := dedup.New(nil)
	for _, header := range []string{ // headers of five messages
		"5f1d0c3a9be24f60a1c7d2e8b4960357-1",
		"5f1d0c3a9be24f60a1c7d2e8b4960357-2",
		"5f1d0c3a9be24f60a1c7d2e8b4960357-1", // sent again, because the answer was lost
		"5f1d0c3a9be24f60a1c7d2e8b4960357-3",
	} {
		id, err := dedup.Parse([]byte(header))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(id.Ticket, w.First(id))
	}
	fmt.Printf("%+v\n", w.Stats())
	// Output:
	// 1 true
	// 2 true
	// 1 false
	// 3 true
	// {First:3 Twice:1 Unknown:0 Forgotten:0}
}
