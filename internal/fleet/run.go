package fleet

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/breaker"
)

// A host is one of the fleet.
//
//	trying ──the engine takes its session──▶ catching up ──nothing waits──▶ well
type host struct {
	partition int
	circuit   *breaker.Circuit
	failures  int           // attempts in a row
	began     time.Duration // of the tries of its session; less than 0: that is over
	tries     int           // of its session
	tripped   bool
	ready     time.Duration // from when on it sends whole batches
	ahead     float64       // records that it has sent before

	at                                    time.Duration // to which it was followed
	accepted, delivered, dropped, waiting float64
	most                                  float64 // that waited
	connected, caughtUp                   time.Duration
}

// A fleet is a simulation under way.
type fleet struct {
	Config
	hosts    []host
	rng      *rand.Rand
	due      attempts
	served   time.Duration // when the engine has served those in line
	bins     []int
	before   int // bins before the end of the outage
	timedOut int
	cut      []time.Duration // scratch of cuts
}

// epoch is the beginning of the outage, for what wants a time.
var epoch = time.Unix(0, 0)

// jitter is that of the hosts.
func (f *fleet) jitter(lo, hi time.Duration) time.Duration {
	if f.Together || hi <= lo {
		return max(lo, hi)
	}
	return lo + time.Duration(f.rng.Uint64N(uint64(hi-lo)+1))
}

// Run simulates an outage that begins now, until all hosts have caught up.
func (c Config) Run() (*Result, error) {
	r, err := c.run()
	if err == nil && r.Dropped > 0 {
		c.SpoolBytes = math.MaxInt64 / 2
		if all, err := c.run(); err == nil { // or that would take months
			r.SpoolNeed = all.SpoolNeed
		}
	}
	return r, err
}

func (c Config) run() (*Result, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	f := &fleet{Config: r, rng: r.rand(2), before: int((r.Outage + time.Second - 1) / time.Second)}
	step, busiest, err := f.step()
	if err != nil {
		return nil, err
	}
	f.begin()
	end := f.flow(step)
	return f.result(end, busiest), nil
}

const (
	steps      = 1000 // or nearly so
	cutsOfStep = 32   // at most
)

// step returns how long a step is, and the hosts of the busiest partition. It refuses an
// engine that never catches up, or not in a time worth simulating.
func (f *fleet) step() (time.Duration, int, error) {
	busiest := f.busiest(f.Partitions)
	left := f.takes() - float64(busiest)*f.Rate
	if f.Keyed {
		left = f.takes() - float64(f.Hosts)*f.Rate/float64(f.Partitions)
	}
	if left <= 0 {
		return 0, 0, fmt.Errorf("%w: %d of %d hosts write to the busiest of %d partitions, %.0f records/s; it takes %.0f",
			ErrTooSlow, busiest, f.Hosts, f.Partitions, float64(busiest)*f.Rate, f.takes())
	}
	wait := f.Outage + f.Back()
	backlog := min(f.Rate*wait.Seconds(), f.room())
	seconds := backlog / (f.sends() - f.Rate)
	if f.Keyed {
		seconds = max(seconds, backlog*float64(f.Hosts)/float64(f.Partitions)/left)
	} else {
		seconds = max(seconds, backlog*float64(busiest)/left)
	}
	if seconds > Longest.Seconds() {
		return 0, 0, fmt.Errorf("%w: to catch up takes %.0f days; more partitions would do it sooner", ErrTooSlow, seconds/86400)
	}
	all := wait.Seconds() + seconds
	return max(10*time.Millisecond, time.Duration(all/steps*1e9)), busiest, nil
}

// begin lets the hosts fail: each when it has something to send.
func (f *fleet) begin() {
	f.hosts = make([]host, f.Hosts)
	every := max(f.Flush, time.Duration(1e9/f.Rate))
	for i, p := range f.assign(f.Partitions) {
		h := &f.hosts[i]
		h.partition, h.circuit = p, breaker.New(breaker.Default(), f.jitter)
		first := time.Duration(f.rng.Uint64N(uint64(every)))
		switch {
		case first >= f.Outage: // it has noticed nothing
			h.connected, h.caughtUp = f.Outage, f.Outage
			h.at = f.Outage
			h.accepted = f.Rate * f.Outage.Seconds()
			h.delivered = h.accepted
		case f.Within > 0:
			h.began = first
			f.due = append(f.due, attempt{first + f.tryAgain(h), i})
		default:
			h.began = -1
			f.due = append(f.due, attempt{f.failed(h, first, 1), i})
		}
	}
	heap.Init(&f.due)
}

// tryAgain returns how long a session waits for its next try.
func (f *fleet) tryAgain(h *host) time.Duration {
	h.tries++
	ceil := backoff.Ceil(tryMin, tryMax, h.tries)
	return f.jitter(ceil/2, ceil)
}

// failed notes that so many batches of h failed at once, and returns when its next attempt is.
func (f *fleet) failed(h *host, now time.Duration, batches int) time.Duration {
	for range batches {
		h.failures++
		if h.circuit.Failed(epoch.Add(now), 0, false) {
			h.tripped = true
			return h.circuit.Until().Sub(epoch)
		}
	}
	return now + f.jitter(0, backoff.Ceil(backoff.RetryMin, backoff.RetryMax, h.failures-1))
}

// attempt lets host i try to reach the engine, and returns when it tries again, or that it
// need not.
func (f *fleet) attempt(at time.Duration, i int) (again time.Duration, failed bool) {
	h := &f.hosts[i]
	f.count(at)
	done := at + f.Fail
	if at >= f.Outage {
		done = max(at, f.served)
		if done-at <= f.DialTimeout {
			if f.Accept > 0 {
				f.served = done + time.Duration(1e9/f.Accept)
			}
			f.connect(h, done)
			return 0, false
		}
		f.timedOut++
		done = at + f.DialTimeout
	}
	if h.began < 0 {
		h.circuit.Admit(epoch.Add(at))
		return f.failed(h, done, 1), true
	}
	if done < h.began+f.Within {
		return done + f.tryAgain(h), true
	}
	h.began = -1
	return f.failed(h, done, f.Window), true
}

// count notes an attempt.
func (f *fleet) count(at time.Duration) {
	n := int(math.Floor((at - f.Outage).Seconds())) + f.before
	if n >= len(f.bins) {
		f.bins = append(f.bins, make([]int, n+1-len(f.bins))...)
	}
	f.bins[n]++
}

// connect begins a session of h, which sends as much as its circuit lets it.
func (f *fleet) connect(h *host, now time.Duration) {
	h.connected = now
	f.follow(h, now)
	for full := max(1, int(f.batch())); ; {
		limit, _, _ := h.circuit.Admit(epoch.Add(now))
		if limit == 0 {
			break
		}
		now += f.Latency
		f.follow(h, now)
		h.ahead += f.deliver(h, float64(min(limit, full)))
		h.circuit.Worked(epoch.Add(now), limit < full)
	}
	h.ready = now
}

// follow lets records arrive at h until now, while it sends none.
func (f *fleet) follow(h *host, now time.Duration) {
	f.arrive(h, now)
	f.drop(h)
}

// arrive lets records arrive at h until now.
func (f *fleet) arrive(h *host, now time.Duration) {
	n := f.Rate * (now - h.at).Seconds()
	h.at = now
	h.accepted += n
	h.waiting += n
}

// drop drops what h has no room for.
func (f *fleet) drop(h *host) {
	if over := h.waiting - f.room(); over > 0 {
		h.dropped += over
		h.waiting -= over
	}
	h.most = max(h.most, h.waiting)
}

// memory is how many records the slabs of a host hold.
func (f *fleet) memory() float64 { return float64(f.Slabs.SlabRecords) * float64(f.Slabs.SlabCount) }

// room is how many records a host has room for.
func (f *fleet) room() float64 { return f.memory() + float64(f.SpoolBytes)/f.onDisk() }

// deliver takes n records from h, or as many as there are, and returns how many.
func (f *fleet) deliver(h *host, n float64) float64 {
	n = min(n, h.waiting)
	h.waiting -= n
	h.delivered += n
	return n
}

// flow moves records in steps until all hosts are well, and returns when that is.
func (f *fleet) flow(step time.Duration) (end time.Duration) {
	joining := make([]int, 0, f.Hosts) // they have a session, and no whole batches go yet
	partitions := f.Partitions
	per := f.takes()
	if f.Keyed {
		partitions, per = 1, per*float64(f.Partitions)
	}
	well := make([]int, partitions)
	catching := make([][]int, partitions)
	ahead := make([]float64, partitions) // records that a partition has taken and no step has counted
	for i := range f.hosts {
		if f.hosts[i].at > 0 {
			well[f.hosts[i].partition]++
		}
	}
	rest := len(f.due)
	for end = f.Outage; rest > 0; {
		// Nothing flows during the outage.
		end += step
		for len(f.due) > 0 && f.due[0].at < end {
			a := f.due[0]
			if again, failed := f.attempt(a.at, a.host); failed {
				f.due[0].at = again
				heap.Fix(&f.due, 0)
			} else {
				heap.Pop(&f.due)
				joining = append(joining, a.host)
			}
		}
		joining = slices.DeleteFunc(joining, func(i int) bool {
			h := &f.hosts[i]
			if h.ready >= end {
				return false
			}
			catching[h.partition] = append(catching[h.partition], i)
			ahead[h.partition] += h.ahead
			return true
		})
		for p := range catching {
			if len(catching[p]) == 0 {
				continue
			}
			at := end - step
			for _, cut := range f.cuts(catching[p], at, end) {
				spare := per - float64(well[p])*f.Rate
				room := spare*(cut-at).Seconds() - ahead[p]
				ahead[p] = max(0, -room)
				n := len(catching[p])
				catching[p] = f.share(catching[p], max(0, room), at, cut, f.Rate*step.Seconds()/1e3)
				n -= len(catching[p])
				well[p], rest = well[p]+n, rest-n
				at = cut
			}
		}
	}
	return end
}

// cuts returns where a step that begins and ends then is cut: where hosts become ready, or
// nearly so if many do. The last cut is end.
func (f *fleet) cuts(hosts []int, begin, end time.Duration) []time.Duration {
	f.cut = f.cut[:0]
	for _, i := range hosts {
		if r := f.hosts[i].ready; r > begin {
			f.cut = append(f.cut, r)
		}
	}
	slices.Sort(f.cut)
	if n := len(f.cut); n > cutsOfStep {
		for k := range cutsOfStep {
			f.cut[k] = f.cut[k*n/cutsOfStep]
		}
		f.cut = f.cut[:cutsOfStep]
	}
	f.cut = append(f.cut, end)
	return f.cut
}

// share divides room records among the hosts that catch up, and returns those that have more
// than little left at the end. None gets more than it can send, and what one leaves goes to the
// others.
func (f *fleet) share(hosts []int, room float64, begin, end time.Duration, little float64) (left []int) {
	wants := make([]float64, len(hosts))
	for k, i := range hosts {
		h := &f.hosts[i]
		f.arrive(h, end)
		if open := end - max(begin, h.ready); open > 0 {
			wants[k] = min(h.waiting, f.sends()*open.Seconds())
		}
	}
	fair := level(wants, room)
	for k, i := range hosts {
		h := &f.hosts[i]
		f.deliver(h, min(wants[k], fair))
		f.drop(h)
		if h.waiting > little || h.ready >= end {
			left = append(left, i)
			continue
		}
		f.deliver(h, h.waiting)
		h.caughtUp = end
	}
	return left
}

// level returns the most that each may have, so that all together have room: any number if
// they want no more than that.
func level(wants []float64, room float64) float64 {
	fair := room / float64(len(wants))
	for {
		left, greedy := room, 0
		for _, w := range wants {
			if w <= fair {
				left -= w
			} else {
				greedy++
			}
		}
		if greedy == 0 {
			return math.Inf(1)
		}
		next := left / float64(greedy)
		if next <= fair {
			return fair
		}
		fair = next
	}
}

// result adds up what became of all.
func (f *fleet) result(end time.Duration, busiest int) *Result {
	r := &Result{Ended: end, Busiest: busiest, Attempts: f.bins, Outage: f.before, TimedOut: f.timedOut}
	connected, caughtUp := make([]time.Duration, f.Hosts), make([]time.Duration, f.Hosts)
	for i := range f.hosts {
		h := &f.hosts[i]
		f.arrive(h, end) // since it is well
		f.deliver(h, h.waiting)
		r.Accepted += h.accepted
		r.Delivered += h.delivered
		r.Dropped += h.dropped
		r.Waiting += h.waiting
		r.Backlog = max(r.Backlog, h.most)
		if h.tripped {
			r.Tripped++
		}
		spooled := f.spooled(h)
		r.SpoolBytes = max(r.SpoolBytes, spooled)
		r.SpoolTotal += spooled
		connected[i], caughtUp[i] = h.connected-f.Outage, h.caughtUp-f.Outage
	}
	for _, n := range f.bins[min(f.before, len(f.bins)):] {
		r.Peak = max(r.Peak, n)
	}
	r.Connected, r.CaughtUp = spread(connected), spread(caughtUp)
	// Once all are back a host sends more than arrives, unless others have sent much ahead.
	r.SpoolNeed = int64(math.Ceil(max(r.Backlog, f.Rate*(f.Outage+r.Connected.Max).Seconds()) * f.onDisk()))
	return r
}

// spooled is how many bytes the spool of h had when it was fullest. Once the circuit opens,
// what is in memory goes there, too.
func (f *fleet) spooled(h *host) int64 {
	n := h.most
	if !h.tripped {
		n -= f.memory()
	}
	return int64(min(max(0, n)*f.onDisk(), float64(f.SpoolBytes)))
}

func spread(d []time.Duration) Spread {
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[max(0, int(math.Ceil(q*float64(len(d))))-1)] }
	return Spread{at(.5), at(.99), at(1)}
}

// An attempt is when a host tries to reach the engine.
type attempt struct {
	at   time.Duration
	host int
}

// attempts is a heap, the earliest first.
type attempts []attempt

func (a attempts) Len() int      { return len(a) }
func (a attempts) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a attempts) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].host < a[j].host
}
func (a *attempts) Push(x any) { *a = append(*a, x.(attempt)) }
func (a *attempts) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
