package main

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"testing"
)

// TestSteps: each step sends the same events.
func TestSteps(t *testing.T) {
	for _, exception := range []bool{false, true} {
		recs := records(exception)[:2*pushEvents+1]
		recs[7].Time, recs[8].Time = recs[8].Time, recs[7].Time
		var want []any
		for s := range steps {
			var got []any
			p := newStepped(s, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				var push struct {
					Streams []struct {
						Stream map[string]string
						Values [][2]string
					}
				}
				if err := json.NewDecoder(r.Body).Decode(&push); err != nil {
					t.Fatalf("%v: %v", s, err)
				}
				r.Body.Close()
				for _, st := range push.Streams {
					for _, v := range st.Values {
						var line map[string]any
						if err := json.Unmarshal([]byte(v[1]), &line); err != nil {
							t.Fatalf("%v: %v in %s", s, err, v[1])
						}
						got = append(got, st.Stream, v[0], line)
					}
				}
				return &http.Response{StatusCode: 204, Body: io.NopCloser(http.NoBody), Request: r}, nil
			})})
			for _, r := range recs {
				p.log(r)
			}
			if p.push(); p.fault != nil {
				t.Fatal(p.fault)
			}
			if s == first {
				want = got
			}
			if len(got) != 3*len(recs) || !reflect.DeepEqual(got, want) {
				t.Errorf("%v sends other events than step 0: %d and %d values", s, len(got), len(want))
			}
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
