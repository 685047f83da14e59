package plural

import "testing"

func TestOf(t *testing.T) {
	for want, got := range map[string]string{
		"0 records": Records(0), "1 record": Records(1), "2 records": Records(2), "1000 files": Of(1000, "file"),
		"1 batch": Of(1, "batch"), "2 batches": Of(2, "batch"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
