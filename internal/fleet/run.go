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

// A host is one simulated host. Its session and its circuit determine its state:
//
//	trying ──session accepted──▶ catching up ──no backlog──▶ healthy
type host struct {
	partition int
	circuit   *breaker.Circuit
	failures  int           // number of consecutive failed attempts
	began     time.Duration // time of the first failure of the session, see Config.Within; -1 after the session has ended
	tries     int           // number of failed attempts of the session
	tripped   bool
	ready     time.Duration // time from which the circuit is closed and the host sends whole batches
	sentEarly float64       // number of records sent before ready, while the circuit was half-open

	at                                    time.Duration // time up to which logged records are counted
	accepted, delivered, dropped, waiting float64
	maxBacklog                            float64 // largest backlog so far, in records
	connected, caughtUp                   time.Duration
}

// A fleet is the state of a simulation.
type fleet struct {
	Config
	hosts      []host
	rng        *rand.Rand
	due        attempts
	queueEnd   time.Duration // time at which the backend has accepted all queued hosts
	bins       []int
	outageBins int // number of bins for the time before the end of the outage
	timedOut   int
	cut        []time.Duration // scratch memory for the method cuts
}

// epoch is the beginning of the outage, as a time.Time for functions that need one.
var epoch = time.Unix(0, 0)

// jitter returns a random duration from lo to hi, or hi if Config.Together is set.
func (f *fleet) jitter(lo, hi time.Duration) time.Duration {
	if f.Together || hi <= lo {
		return max(lo, hi)
	}
	return lo + time.Duration(f.rng.Uint64N(uint64(hi-lo)+1))
}

// Run simulates an outage from its beginning until all hosts have caught up.
func (c Config) Run() (*Result, error) {
	r, err := c.run()
	if err == nil && r.Dropped > 0 {
		c.SpoolBytes = math.MaxInt64 / 2
		if all, err := c.run(); err == nil { // if there is an error, SpoolNeed remains a lower bound
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
	f := &fleet{Config: r, rng: r.rand(2), outageBins: int((r.Outage + time.Second - 1) / time.Second)}
	step, busiest, err := f.step()
	if err != nil {
		return nil, err
	}
	f.begin()
	end := f.flow(step)
	return f.result(end, busiest), nil
}

const (
	steps      = 1000 // approximate number of steps of a simulation
	cutsOfStep = 32   // maximum number of parts of a step
)

// step returns the duration of a step of the simulation, and the number of hosts of the busiest
// partition. It returns an error if the backend cannot catch up within Longest.
func (f *fleet) step() (time.Duration, int, error) {
	busiest := f.busiest(f.Partitions)
	left := f.capacity() - float64(busiest)*f.Rate
	if f.Keyed {
		left = f.capacity() - float64(f.Hosts)*f.Rate/float64(f.Partitions)
	}
	if left <= 0 {
		return 0, 0, fmt.Errorf("%w: %d of %d hosts write to the busiest of %d partitions, %.0f records/s; it takes %.0f",
			ErrTooSlow, busiest, f.Hosts, f.Partitions, float64(busiest)*f.Rate, f.capacity())
	}
	wait := f.Outage + f.Back()
	backlog := min(f.Rate*wait.Seconds(), f.hostLimit())
	seconds := backlog / (f.sendRate() - f.Rate)
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

// begin simulates the first attempt of each host, when it logs its first record. During the outage,
// the attempt fails.
func (f *fleet) begin() {
	f.hosts = make([]host, f.Hosts)
	every := max(f.Flush, time.Duration(1e9/f.Rate))
	for i, p := range f.assign(f.Partitions) {
		h := &f.hosts[i]
		h.partition, h.circuit = p, breaker.New(breaker.Default(), f.jitter, nil)
		first := time.Duration(f.rng.Uint64N(uint64(every)))
		switch {
		case first >= f.Outage: // the host logs no record during the outage
			h.connected, h.caughtUp = f.Outage, f.Outage
			h.at = f.Outage
			h.accepted = f.Rate * f.Outage.Seconds()
			h.delivered = h.accepted
		case f.Within > 0:
			h.began = first
			f.due = append(f.due, attempt{first + f.retryDelay(h), i})
		default:
			h.began = -1
			f.due = append(f.due, attempt{f.recordFailures(h, first, 1), i})
		}
	}
	heap.Init(&f.due)
}

// retryDelay returns the delay before the next attempt of h's session.
func (f *fleet) retryDelay(h *host) time.Duration {
	h.tries++
	ceil := backoff.Ceil(tryMin, tryMax, h.tries)
	return f.jitter(ceil/2, ceil)
}

// recordFailures counts the simultaneous failures of several batches of h, and returns the time of
// h's next attempt.
func (f *fleet) recordFailures(h *host, now time.Duration, batches int) time.Duration {
	for range batches {
		h.failures++
		if h.circuit.Failed(epoch.Add(now), 0, false) {
			h.tripped = true
			return h.circuit.Until().Sub(epoch)
		}
	}
	return now + f.jitter(0, backoff.Ceil(backoff.RetryMin, backoff.RetryMax, h.failures-1))
}

// attempt simulates an attempt of host i to connect at time t. If the attempt fails, again is the
// time of the next one.
func (f *fleet) attempt(t time.Duration, i int) (again time.Duration, failed bool) {
	h := &f.hosts[i]
	f.count(t)
	done := t + f.Fail
	if t >= f.Outage {
		done = max(t, f.queueEnd)
		if done-t <= f.DialTimeout {
			if f.Accept > 0 {
				f.queueEnd = done + time.Duration(1e9/f.Accept)
			}
			f.connect(h, done)
			return 0, false
		}
		f.timedOut++
		done = t + f.DialTimeout
	}
	if h.began < 0 {
		h.circuit.Admit(epoch.Add(t))
		return f.recordFailures(h, done, 1), true
	}
	if done < h.began+f.Within {
		return done + f.retryDelay(h), true
	}
	h.began = -1
	return f.recordFailures(h, done, f.Window), true
}

// count counts an attempt at time t in the bin of its second.
func (f *fleet) count(t time.Duration) {
	n := int(math.Floor((t - f.Outage).Seconds())) + f.outageBins
	if n >= len(f.bins) {
		f.bins = append(f.bins, make([]int, n+1-len(f.bins))...)
	}
	f.bins[n]++
}

// connect starts a session of h. h first sends as many records as its half-open circuit admits.
func (f *fleet) connect(h *host, now time.Duration) {
	h.connected = now
	f.idleUntil(h, now)
	for full := max(1, int(f.batch())); ; {
		limit, _, _ := h.circuit.Admit(epoch.Add(now))
		if limit == 0 {
			break
		}
		now += f.Latency
		f.idleUntil(h, now)
		h.sentEarly += f.deliver(h, float64(min(limit, full)))
		h.circuit.Worked(epoch.Add(now), limit < full)
	}
	h.ready = now
}

// idleUntil counts the records that h logs until now, while h sends nothing.
func (f *fleet) idleUntil(h *host, now time.Duration) {
	f.arrive(h, now)
	f.drop(h)
}

// arrive counts the records that h logs until now.
func (f *fleet) arrive(h *host, now time.Duration) {
	n := f.Rate * (now - h.at).Seconds()
	h.at = now
	h.accepted += n
	h.waiting += n
}

// drop drops the waiting records that do not fit into the memory and the spool of h.
func (f *fleet) drop(h *host) {
	if over := h.waiting - f.hostLimit(); over > 0 {
		h.dropped += over
		h.waiting -= over
	}
	h.maxBacklog = max(h.maxBacklog, h.waiting)
}

// memory returns the number of records that fit into the memory of a host.
func (f *fleet) memory() float64 { return float64(f.Slabs.SlabRecords) * float64(f.Slabs.SlabCount) }

// hostLimit returns the number of records that fit into the memory and the spool of a host.
func (f *fleet) hostLimit() float64 { return f.memory() + float64(f.SpoolBytes)/f.onDisk() }

// deliver delivers up to n records of h, and returns the number delivered.
func (f *fleet) deliver(h *host, n float64) float64 {
	n = min(n, h.waiting)
	h.waiting -= n
	h.delivered += n
	return n
}

// flow simulates the flow of records, step by step, until no host has a backlog. It returns the
// time at which all backlogs have ended.
func (f *fleet) flow(step time.Duration) (end time.Duration) {
	joining := make([]int, 0, f.Hosts) // indexes of hosts whose circuit is half-open
	partitions := f.Partitions
	per := f.capacity()
	if f.Keyed {
		partitions, per = 1, per*float64(f.Partitions)
	}
	healthy := make([]int, partitions)
	catching := make([][]int, partitions)
	ahead := make([]float64, partitions) // number of records that a partition has accepted ahead of its capacity
	for i := range f.hosts {
		if f.hosts[i].at > 0 {
			healthy[f.hosts[i].partition]++
		}
	}
	rest := len(f.due)
	for end = f.Outage; rest > 0; {
		// The first step begins at the end of the outage, because no record is delivered earlier.
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
			ahead[h.partition] += h.sentEarly
			return true
		})
		for p := range catching {
			if len(catching[p]) == 0 {
				continue
			}
			at := end - step
			for _, cut := range f.cuts(catching[p], at, end) {
				spare := per - float64(healthy[p])*f.Rate
				available := spare*(cut-at).Seconds() - ahead[p]
				ahead[p] = max(0, -available)
				n := len(catching[p])
				catching[p] = f.share(catching[p], max(0, available), at, cut, f.Rate*step.Seconds()/1e3)
				n -= len(catching[p])
				healthy[p], rest = healthy[p]+n, rest-n
				at = cut
			}
		}
	}
	return end
}

// cuts divides a step into parts and returns their end times. A part ends when a host becomes
// ready. If more than cutsOfStep hosts become ready, some parts are merged. The last part ends at
// the time end.
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

// share divides a sending capacity, in records, among the hosts that are catching up. It returns
// the hosts whose number of waiting records at the time end exceeds negligible. No host receives
// more capacity than it can use; the remaining hosts share the rest.
func (f *fleet) share(hosts []int, capacity float64, begin, end time.Duration, negligible float64) (left []int) {
	wants := make([]float64, len(hosts))
	for k, i := range hosts {
		h := &f.hosts[i]
		f.arrive(h, end)
		if open := end - max(begin, h.ready); open > 0 {
			wants[k] = min(h.waiting, f.sendRate()*open.Seconds())
		}
	}
	fair := level(wants, capacity)
	for k, i := range hosts {
		h := &f.hosts[i]
		f.deliver(h, min(wants[k], fair))
		f.drop(h)
		if h.waiting > negligible || h.ready >= end {
			left = append(left, i)
			continue
		}
		f.deliver(h, h.waiting)
		h.caughtUp = end
	}
	return left
}

// level returns the fair share of each host: the largest number of records per host for which the
// capacity is sufficient. wants contains the number of records that each host can send; a host that
// can send less than the share receives only this number. If the capacity is sufficient for all,
// the share is infinity.
func level(wants []float64, capacity float64) float64 {
	fair := capacity / float64(len(wants))
	for {
		left, greedy := capacity, 0
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

// result returns the Result at the time end.
func (f *fleet) result(end time.Duration, busiest int) *Result {
	r := &Result{Ended: end, Busiest: busiest, Attempts: f.bins, Outage: f.outageBins, TimedOut: f.timedOut}
	connected, caughtUp := make([]time.Duration, f.Hosts), make([]time.Duration, f.Hosts)
	for i := range f.hosts {
		h := &f.hosts[i]
		f.arrive(h, end) // records logged since the host caught up
		f.deliver(h, h.waiting)
		r.Accepted += h.accepted
		r.Delivered += h.delivered
		r.Dropped += h.dropped
		r.Waiting += h.waiting
		r.Backlog = max(r.Backlog, h.maxBacklog)
		if h.tripped {
			r.Tripped++
		}
		spooled := f.maxSpoolBytes(h)
		r.SpoolBytes = max(r.SpoolBytes, spooled)
		r.SpoolTotal += spooled
		connected[i], caughtUp[i] = h.connected-f.Outage, h.caughtUp-f.Outage
	}
	for _, n := range f.bins[min(f.outageBins, len(f.bins)):] {
		r.Peak = max(r.Peak, n)
	}
	r.Connected, r.CaughtUp = spread(connected), spread(caughtUp)
	// After its last reconnect, a host sends faster than it logs. Its backlog can then grow only if
	// other hosts have used the capacity in advance.
	r.SpoolNeed = int64(math.Ceil(max(r.Backlog, f.Rate*(f.Outage+r.Connected.Max).Seconds()) * f.onDisk()))
	return r
}

// maxSpoolBytes returns the largest size of h's spool, in bytes. When the circuit opens, the
// records in memory are also moved to the spool.
func (f *fleet) maxSpoolBytes(h *host) int64 {
	n := h.maxBacklog
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

// An attempt is the next connection attempt of a host.
type attempt struct {
	at   time.Duration
	host int
}

// attempts is a heap of attempts, ordered by time and then by host.
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
