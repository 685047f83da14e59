package compression

import (
	"bytes"
	"io"
	"testing"
)

// The gzip reader reads the output of each level, even if writer and reader are reused.
func TestGzip(t *testing.T) {
	f, err := Find("gzip")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []Level{Fast, Small} {
		w, r := f.NewWriter(l), f.NewReader()
		for _, text := range []string{"one", "two two two"} {
			var b bytes.Buffer
			w.Reset(&b)
			io.WriteString(w, text)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := r.Reset(&b); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != text {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
}
