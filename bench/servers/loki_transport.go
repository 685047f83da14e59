package main

import (
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// sink204 is an http.RoundTripper that answers every request itself, with status 204. After a few
// requests it no longer allocates, so all measured allocations are the client's.
type sink204 struct {
	requests, bytes atomic.Uint64

	mu   sync.Mutex
	free []*answer204
}

// An answer204 is a response and its empty body. Closing the body returns the answer204 to the free
// list of the sink.
type answer204 struct {
	s      *sink204
	res    http.Response
	header http.Header
	in     [32 << 10]byte
}

func (s *sink204) RoundTrip(r *http.Request) (*http.Response, error) {
	a := s.answer()
	for {
		n, err := r.Body.Read(a.in[:])
		s.bytes.Add(uint64(n))
		if err != nil {
			break
		}
	}
	r.Body.Close()
	s.requests.Add(1)
	a.res = http.Response{StatusCode: http.StatusNoContent, Body: a, Header: a.header, Request: r}
	return &a.res, nil
}

func (s *sink204) answer() *answer204 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free) - 1
	if n < 0 {
		return &answer204{s: s, header: http.Header{}}
	}
	a := s.free[n]
	s.free = s.free[:n]
	return a
}

func (a *answer204) Read([]byte) (int, error) { return 0, io.EOF }

func (a *answer204) Close() error {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if !slices.Contains(a.s.free, a) { // Close may be called twice
		a.s.free = append(a.s.free, a)
	}
	return nil
}

func newSink204() *sink204 {
	s := new(sink204)
	for range 4 { // one for each concurrent request
		s.free = append(s.free, &answer204{s: s, header: http.Header{}})
	}
	return s
}

func (s *sink204) client() *http.Client { return &http.Client{Transport: s} }

// swap sets the transport of the http.Client in *v. It changes the unexported field client, because
// the library has no option for it.
func (s *sink204) swap(v any) {
	f := reflect.ValueOf(v).Elem().FieldByName("client")
	(*(**http.Client)(unsafe.Pointer(f.UnsafeAddr()))).Transport = s
}
