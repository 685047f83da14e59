package experiments

import (
	"bytes"
	"testing"
)

// Records larger than a slab keep their place, however many there are.
func TestOversizeWriter(t *testing.T) {
	var got, want bytes.Buffer
	w := &oversizeWriter{newLadder(&got, 100, 2)}
	for i := range 50 {
		p := bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*7)
		want.Write(p)
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Drain(); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%v: %d bytes, want %d", err, got.Len(), want.Len())
	}
}
