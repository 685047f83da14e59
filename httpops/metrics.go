package httpops

import (
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// Metrics responds with the statistics of the Router in the Prometheus text format, version 0.0.4.
// The HELP lines describe the metrics. Names and labels are stable; docs/OPERATING.md contains
// alerting rules.
func (o *Ops) Metrics(w http.ResponseWriter, r *http.Request) {
	st := o.from.Stats()
	p := printer{now: time.Now(), b: make([]byte, 0, 4<<10*(1+len(st.Outputs)))}
	for i := range families {
		f := &families[i]
		p.family, p.headWritten = f, false
		f.print(&p, &st)
	}
	serve(w, r, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", p.b)
}

// A family is a metric with all its samples, as in the Prometheus text format.
type family struct {
	name, kind, help string
	print            func(*printer, *forebay.Stats)
}

// The types of metrics.
const (
	counter = "counter"
	gauge   = "gauge"
)

// families are the metrics, in the order of the response. Those of memory and delivery are omitted
// for an output that is not a deliver.Output, and those of the spool for an output without a spool.
var families = []family{
	{"forebay_records_refused_total", counter, "Records written after Close. They are in no account.",
		func(p *printer, s *forebay.Stats) { p.count(s.Refused) }},
	{"forebay_events_lost_total", counter, "Events dropped because OnError was busy with earlier ones.",
		func(p *printer, s *forebay.Stats) { p.count(s.EventsLost) }},

	{"forebay_output_up", gauge, "1 if the destination is up or has failed only briefly, 0 if it is down, as in Health.",
		each(func(p *printer, o *forebay.OutputStats) { p.flag(healthOf(o, p.now).state != stateDown) })},
	{"forebay_records_accepted_total", counter, "Records handed to the output, including those dropped at once.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Accepted) })},
	{"forebay_records_recovered_total", counter, "Records of an earlier process, found on disk at the start.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Recovered) })},
	{"forebay_records_delivered_total", counter, "Records accepted by the destination.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Delivered) })},
	{"forebay_records_handled_total", counter, "Records accepted by the error handler or fallback.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Handled) })},
	{"forebay_records_dropped_total", counter, "Records given up, by reason.",
		each(func(p *printer, o *forebay.OutputStats) {
			for i, n := range o.Dropped {
				p.countOf("reason", batch.Reason(i).String(), n)
			}
		})},
	{"forebay_records_pending", gauge, "Records neither delivered nor dropped yet: in memory (slab), in the spool (spill), or sent and not answered (inflight).",
		each(func(p *printer, o *forebay.OutputStats) {
			p.countOf("place", "slab", o.Pending.Slab)
			p.countOf("place", "spill", o.Pending.Spill)
			p.countOf("place", "inflight", o.Pending.Inflight)
		})},
	{"forebay_output_errors_total", counter, "Failed writes to a direct output, or records for which a buffered one returned an error.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Errors) })},
	{"forebay_output_panics_total", counter, "Calls of a direct output's writer or of a buffered one's driver that panicked.",
		each(func(p *printer, o *forebay.OutputStats) { p.count(o.Panics) })},

	{"forebay_oldest_wait_seconds", gauge, "How long the oldest record in memory has waited.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(waited(d).Seconds()) })},
	{"forebay_circuit_state", gauge, "1 for the state that the circuit breaker is in.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) {
			for s := deliver.Closed; s <= deliver.HalfOpen; s++ {
				p.flagOf("state", s.String(), s == d.Deliver.Breaker)
			}
		})},
	{"forebay_circuit_opened_total", counter, "Times the circuit breaker has opened.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Deliver.Trips) })},
	{"forebay_sends_total", counter, "Batches given to the destination.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Deliver.Attempts) })},
	{"forebay_sends_failed_total", counter, "Attempts that failed.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Deliver.Retries) })},
	{"forebay_delivered_bytes_total", counter, "Payload bytes accepted by the destination.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Deliver.Bytes) })},
	{"forebay_dead_letters_lost_total", counter, "Refused records that could not be written to the dead letters.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Deliver.LostDeadLetters) })},
	{"forebay_memory_bytes", gauge, "Size of the memory.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) {
			p.value(float64(d.Slab.SlabCount) * float64(d.Slab.SlabBytes))
		})},
	{"forebay_memory_room_bytes", gauge, "Free memory.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Slab.Room)) })},
	{"forebay_memory_room_seconds", gauge, "How long the free memory lasts at the current rate if the destination accepts nothing; at most a day.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(d.Slab.BurstLeft.Seconds()) })},
	{"forebay_memory_fill_bytes_per_second", gauge, "Rate of acceptance over the last seconds.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(d.Slab.Rate) })},
	{"forebay_callers_waiting", gauge, "Callers that wait for room.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Slab.Waiting)) })},
	{"forebay_calls_waited_total", counter, "Calls that have waited for room.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Slab.Waits) })},
	{"forebay_calls_waited_seconds_total", counter, "Total time that calls have waited for room.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(d.Slab.WaitTime.Seconds()) })},
	{"forebay_crash_unsafe", gauge, "1 if crash-safe memory was requested and the slabs are on the heap.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.flag(d.Slab.CrashUnsafe != "") })},
	{"forebay_crash_unsafe_records", gauge, "Pending records larger than a slab that are only in memory although crash-safe memory was requested.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Slab.HeapOnly)) })},
	{"forebay_crash_damaged_files", gauge, "Damaged files of earlier processes, found at the start and set aside.",
		eachDelivery(func(p *printer, d *deliver.OutputStats) { p.count(d.Slab.Recovery.DamagedFiles) })},

	{"forebay_spool_bytes", gauge, "Size of the spool on disk.",
		eachSpool(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Spool.Bytes)) })},
	{"forebay_spool_max_bytes", gauge, "Quota of the spool.",
		eachSpool(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Spool.MaxBytes)) })},
	{"forebay_spool_oldest_seconds", gauge, "Age of the oldest segment with records that are not delivered, 0 if there is none.",
		eachSpool(func(p *printer, d *deliver.OutputStats) {
			if at := d.Spool.Oldest; at.IsZero() {
				p.value(0)
			} else {
				p.value(p.now.Sub(at).Seconds())
			}
		})},
	{"forebay_spool_parked_records", gauge, "Records in a form that the destination does not accept.",
		eachSpool(func(p *printer, d *deliver.OutputStats) { p.count(d.Spool.Parked) })},
	{"forebay_spool_damaged_files", gauge, "Damaged files set aside.",
		eachSpool(func(p *printer, d *deliver.OutputStats) { p.value(float64(d.Spool.AsideFiles)) })},
}

// each returns a function that calls print for each output.
func each(print func(*printer, *forebay.OutputStats)) func(*printer, *forebay.Stats) {
	return func(p *printer, s *forebay.Stats) {
		for i := range s.Outputs {
			p.output = &s.Outputs[i].Name
			print(p, &s.Outputs[i])
		}
		// The next family may have samples that belong to the Router and not to an output.
		p.output = nil
	}
}

// eachDelivery is like each, for outputs with memory and delivery.
func eachDelivery(print func(*printer, *deliver.OutputStats)) func(*printer, *forebay.Stats) {
	return each(func(p *printer, o *forebay.OutputStats) {
		if o.Delivery != nil {
			print(p, o.Delivery)
		}
	})
}

// eachSpool is like each, for outputs with a spool.
func eachSpool(print func(*printer, *deliver.OutputStats)) func(*printer, *forebay.Stats) {
	return eachDelivery(func(p *printer, d *deliver.OutputStats) {
		// Every spool has a quota, so MaxBytes shows whether there is a spool.
		if d.Spool.MaxBytes > 0 {
			print(p, d)
		}
	})
}

// A printer appends samples to b. A sample has the label output if it belongs to an output.
type printer struct {
	b           []byte
	now         time.Time
	family      *family
	headWritten bool    // the lines HELP and TYPE of the family are written
	output      *string // name of the output; nil for samples of the Router
}

// value appends a sample.
func (p *printer) value(v float64) {
	p.begin("", "")
	p.b = append(strconv.AppendFloat(p.b, v, 'f', -1, 64), '\n')
}

// count appends a sample with an integer.
func (p *printer) count(n uint64) { p.countOf("", "", n) }

// countOf appends a sample with an integer and an additional label.
func (p *printer) countOf(label, value string, n uint64) {
	p.begin(label, value)
	p.b = append(strconv.AppendUint(p.b, n, 10), '\n')
}

// flag appends a sample with the value 1 if the parameter on is true, and 0 if it is false.
func (p *printer) flag(on bool) { p.flagOf("", "", on) }

// flagOf is like flag, with an additional label.
func (p *printer) flagOf(label, value string, on bool) {
	n := uint64(0)
	if on {
		n = 1
	}
	p.countOf(label, value, n)
}

// begin appends a sample up to its value. The first sample of a family is preceded by the lines
// HELP and TYPE.
func (p *printer) begin(label, value string) {
	f := p.family
	if !p.headWritten {
		// The format requires HELP and TYPE once, before the first sample. A family without samples
		// has neither.
		p.headWritten = true
		for _, s := range [...]string{"# HELP ", f.name, " ", f.help, "\n# TYPE ", f.name, " ", f.kind, "\n"} {
			p.b = append(p.b, s...)
		}
	}
	p.b = append(p.b, f.name...)
	// Names of outputs are unique in a Router, so each sample has different labels.
	if p.output != nil {
		p.b = append(p.b, '{')
		p.label("output", *p.output)
		if label != "" {
			p.b = append(p.b, ',')
			p.label(label, value)
		}
		p.b = append(p.b, '}')
	}
	p.b = append(p.b, ' ')
}

// label appends a label. Its value is escaped and valid UTF-8, as the format requires.
func (p *printer) label(name, value string) {
	p.b = append(append(p.b, name...), '=', '"')
	for _, r := range value { // range yields U+FFFD for invalid bytes
		switch r {
		case '\\', '"':
			p.b = append(p.b, '\\', byte(r))
		case '\n':
			p.b = append(p.b, '\\', 'n')
		default:
			p.b = utf8.AppendRune(p.b, r)
		}
	}
	p.b = append(p.b, '"')
}
