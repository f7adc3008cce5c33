package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pollAll polls until look returns true or p ends. It reports whether look returned true.
func pollAll(o *Offers, budget time.Duration, look func() bool) bool {
	p := o.Begin(budget, 0)
	defer p.End()
	for !look() {
		if p.Due() && !p.Offer() {
			return false
		}
	}
	return true
}

func never() bool { return false }

// after returns a function that returns true from its nth call on.
func after(n int) func() bool {
	return func() bool { n--; return n <= 0 }
}

// offering returns an Offers, and how often its processor was offered. An offer takes no time in
// the virtual time of a test, so none is slow.
func offering(crowded bool) (*Offers, *int) {
	n := 0
	o := NewOffers(func() { n++ }, nil)
	if crowded {
		o.SetCrowded()
	}
	return o, &n
}

// Each offer of the processor follows enough polls, and none precedes them.
func TestAWaitOffersItsProcessor(t *testing.T) { synctest.Test(t, waitOffersItsProcessor) }

func waitOffersItsProcessor(t *testing.T) {
	for _, c := range []struct {
		crowded       bool
		polls, offers int
	}{
		{false, 1, 0},
		{false, offerEach, 0},
		{false, offerEach + 1, 1},
		{false, 10*offerEach + 1, 10},
		{true, crowdedFrom, 0},
		{true, crowdedFrom + 1, 1},
		{true, crowdedFrom + 100, 100},
	} {
		o, offers := offering(c.crowded)
		require.True(t, pollAll(o, time.Hour, after(c.polls)))
		require.Equal(t, c.offers, *offers, "%+v", c)
	}
}

// An offer counts in the time of a wait for frames for 10 µs at most.
func TestALongOfferCountsForLittle(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("nobody spins on one processor")
	}
	const budget, most = 100 * time.Microsecond, 100_000
	for took, offers := range map[time.Duration]int{
		100 * time.Nanosecond: 1001, 5 * time.Microsecond: 21, mostOffer: 11, 900 * time.Microsecond: 11,
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			o := NewOffers(func() { n++; time.Sleep(took) }, nil)
			o.patience = impatient
			require.False(t, pollAll(o, budget, after(most)))
			require.Equal(t, offers, n, "of %v", took)

			n = 0
			s := NewSpinner(budget, nil)
			s.Offer(o, 1)
			require.Equal(t, Missed, s.Spin(&countedSource{until: most}))
			require.InDelta(t, offers, n, pollsACheck, "of %v", took)
		})
	}
	synctest.Test(t, func(t *testing.T) { // others notice a cancelled context only when they end
		start := time.Now()
		o := NewOffers(func() { time.Sleep(900 * time.Microsecond) }, nil)
		require.False(t, pollAll(o, budget, after(most)))
		require.Equal(t, 900*time.Microsecond, time.Since(start))
	})
}

// countedSource is ready at poll number until. It is stopped from time stop on, if that is not zero.
type countedSource struct {
	polls, until int
	stop         time.Time
}

func (s *countedSource) Ready() bool   { s.polls++; return s.polls == s.until }
func (s *countedSource) Stopped() bool { return !s.stop.IsZero() && time.Now().After(s.stop) }
func (*countedSource) Yielded()        {}

// A reason to stop is noticed behind the offer in which it came, however long that was.
func TestASpinStopsBehindALongOffer(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("nobody spins on one processor")
	}
	synctest.Test(t, func(t *testing.T) {
		const took = 900 * time.Microsecond
		o := NewOffers(func() { time.Sleep(took) }, nil)
		o.patience = impatient
		s := NewSpinner(50*time.Microsecond, nil)
		s.Offer(o, 1)
		start := time.Now()
		require.Equal(t, Stopped, s.Spin(&countedSource{stop: start.Add(3*took - 1)}))
		require.Equal(t, 3*took, time.Since(start))
	})
}

// A wait for goroutines of this process lets them run after each poll.
func TestAWaitForThisProcessLetsItRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	o := newLocal()
	o.patience.slow = time.Hour // the system may stop this process
	p := o.Begin(time.Hour, 0)
	p.Leave()
	defer p.End()
	start := time.Now()
	p.GaveAt(start)
	var ran atomic.Bool
	go ran.Store(true)
	require.True(t, p.Due(), "after the first poll")
	require.True(t, p.Offer())
	require.True(t, p.Gave().After(start))
	for i := 0; i < 1000 && !ran.Load(); i++ { // the scheduler may choose this goroutine, now and then
		require.True(t, p.Due(), "after each poll")
		require.True(t, p.Offer())
	}
	require.True(t, ran.Load())
}

// The offers of a wait are counted where it says, and those of other waits are not.
func TestOffersAreCounted(t *testing.T) { synctest.Test(t, offersAreCounted) }

func offersAreCounted(t *testing.T) {
	o, offers := offering(true)
	var n atomic.Uint64
	for range 2 {
		require.True(t, pollAll(o, time.Hour, after(50)))
		p := o.Begin(time.Hour, 0)
		p.CountIn(&n)
		for range 100 {
			if p.Due() {
				require.True(t, p.Offer())
			}
		}
		p.End()
	}
	require.EqualValues(t, 2*(100-crowdedFrom+1), n.Load())
	require.EqualValues(t, int(n.Load())+2*(50-crowdedFrom), *offers)

	o.yield = func() { time.Sleep(patient.slow) }
	n.Store(0)
	p := o.Begin(time.Hour, 0)
	p.CountIn(&n)
	for !p.Due() || p.Offer() {
	}
	p.End()
	require.EqualValues(t, 1, n.Load(), "while an offer would take long, none is made")
}

func TestPollsEnd(t *testing.T) { synctest.Test(t, pollsEnd) }

func pollsEnd(t *testing.T) {
	o, offers := offering(false)
	require.False(t, pollAll(o, -1, never), "the budget is used up")
	require.Equal(t, 1, *offers)

	stop := make(chan struct{})
	o = NewOffers(func() {}, stop)
	polls := 0
	require.False(t, pollAll(o, time.Hour, func() bool {
		if polls++; polls == 100 {
			close(stop)
		}
		return false
	}), "there is no reason to wait")
	require.LessOrEqual(t, polls, 100+offerEach)
	require.Zero(t, spinning.Load())
}

// Where other processes compute, each offer of the processor costs one turn of theirs. A
// wait makes one offer at most. The waits that follow sleep without one.
func TestAWaitDoesNotWaitForWorkOfOthers(t *testing.T) {
	const turn = 6 * time.Millisecond
	for name, crowded := range map[string]bool{"crowded": true, "a processor each": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, offers := offering(crowded)
				count := o.yield
				o.yield = func() { count(); time.Sleep(turn) }
				const budget = 200 * time.Microsecond
				for range 100 {
					require.False(t, pollAll(o, budget, never))
				}
				require.Equal(t, 1, *offers)
				for n := range 10 {
					time.Sleep(time.Duration(patient.most) * turn)
					require.False(t, pollAll(o, budget, never))
					require.Equal(t, n+2, *offers, "after a while it is tried again")
				}
			})
		})
	}
}

// Waits that poll and Spinners have one limit. A wait is counted from its second offer on,
// until its end. A Spinner finds the place of one all the same: the wait polls by turns meanwhile.
func TestWaitsThatPollAreCounted(t *testing.T) {
	skipOneProcessor(t)
	synctest.Test(t, waitsThatPollAreCounted)
}

func waitsThatPollAreCounted(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one may spin
	for _, crowded := range []bool{false, true} {
		o, _ := offering(crowded)
		s := NewSpinner(time.Hour, nil)
		spins := func(src *testSource) { require.Equal(t, Hit, s.Spin(src)) }
		p := o.Begin(time.Hour, 0)
		offer := func(p *Polls) {
			for !p.Due() {
			}
			require.True(t, p.Offer())
		}
		offer(&p)
		require.Zero(t, spinning.Load(), "it may be over soon")
		offer(&p)
		require.EqualValues(t, 1, spinning.Load())
		require.False(t, p.turns())
		spins(&testSource{ready: 1, each: func() {
			require.True(t, p.turns())
			offer(&p)
			require.Equal(t, None, new(Spinner{budget: time.Hour}).Spin(&testSource{ready: 1}), "one Spinner at a time")
		}})
		require.False(t, p.turns())

		another := o.Begin(time.Hour, 0)
		offer(&another)
		offer(&another)
		require.True(t, another.turns())
		require.EqualValues(t, 1, spinning.Load(), "a wait beyond the limit is not counted")
		require.EqualValues(t, 1, turning.Load())
		another.End()
		require.Zero(t, turning.Load())
		require.EqualValues(t, 1, spinning.Load(), "and its end is not either")
		p.End()
		require.Zero(t, spinning.Load())
		require.Zero(t, giving.Load())
		require.True(t, enterBesides(false))
		third := o.Begin(time.Hour, 0)
		offer(&third)
		offer(&third)
		require.True(t, third.turns(), "a Spinner has the place")
		third.End()
		leave()
	}
}

// A wait beyond the limit lets other goroutines run after each offer.
func TestAWaitBeyondTheLimitKeepsItsProcessorFromNobody(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one may spin, and one may run
	require.True(t, enter())
	defer leave()
	var ran atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !over.Load() {
			ran.Add(1)
			runtime.Gosched()
		}
	})
	o, offers := offering(true)
	missed, before := 0, int64(0)
	o.yield = func() {
		if *offers++; *offers > 1 && ran.Load() == before {
			missed++
		}
		before = ran.Load()
	}
	p := o.Begin(time.Hour, 0)
	defer p.End()
	for *offers < 1000 {
		for !p.Due() {
		}
		p.Offer()
		o.until.Store(0) // the system may stop this thread during an offer
	}
	over.Store(true)
	all.Wait()
	require.Less(t, missed, *offers/10)
}

func TestPollsDoNotAllocate(t *testing.T) {
	o := NewOffers(func() {}, make(chan struct{}))
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		pollAll(o, time.Hour, func() bool { n++; return n%100 == 0 })
	}))
}

// Pauses grow while offers are slow. After enough that are not, the next slow offer is the first one.
func TestPausesGrowWhileOffersAreSlow(t *testing.T) {
	for name, bears := range map[string]patience{"patient": patient, "impatient": impatient} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, bears.pausesGrow) })
	}
}

func (b patience) pausesGrow(t *testing.T) {
	o, _ := offering(true)
	o.patience = b
	var takes time.Duration
	o.yield = func() { time.Sleep(takes) }
	offer := func(d time.Duration) {
		takes = d
		o.offer(time.Now())
	}
	pause := func() (d time.Duration) {
		for ; o.slow(time.Now()); d += b.slow {
			time.Sleep(b.slow)
		}
		return d
	}
	for times := int64(1); times <= 4*b.most; times *= 2 {
		offer(b.slow)
		require.Equal(t, time.Duration(min(times, b.most))*b.slow, pause())
		for range b.fast - 1 {
			offer(0)
		}
	}
	offer(0)
	for range b.fast {
		offer(0)
	}
	offer(b.slow)
	require.Equal(t, b.slow, pause())
}

// A wait that leaves ends where there is no place, and takes none from a Spinner.
func TestAWaitLeavesItsPlace(t *testing.T) {
	skipOneProcessor(t)
	synctest.Test(t, waitLeavesItsPlace)
}

func waitLeavesItsPlace(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one may spin
	offer := func(p *Polls) bool {
		for !p.Due() {
		}
		return p.Offer()
	}
	o, _ := offering(true)
	p := o.Begin(time.Hour, 0)
	p.Leave()
	require.True(t, offer(&p))
	require.True(t, offer(&p))
	require.EqualValues(t, 1, spinning.Load())

	another := o.Begin(time.Hour, 0)
	another.Leave()
	require.True(t, offer(&another))
	require.False(t, offer(&another), "there is no place")
	another.End()

	s := NewSpinner(time.Hour, nil)
	src := &testSource{ready: 1}
	src.each = func() { require.EqualValues(t, 2, spinning.Load()) }
	require.Equal(t, Hit, s.Spin(src), "those that give way do not count")
	require.True(t, enterBesides(false))
	require.Equal(t, None, s.Spin(&testSource{ready: 1}), "others do")
	leave()

	for range 100 {
		require.True(t, offer(&p))
	}
	p.Again()
	polls := 1
	for !p.Due() {
		polls++
	}
	require.Equal(t, crowdedFrom, polls, "after work the first offer is as late as at the beginning")
	p.End()
	require.Zero(t, spinning.Load())
	require.Zero(t, giving.Load())
}

// A wait that is counted lets other goroutines run after giveWay. Where processes take turns, it leaves that to an
// idle processor for longer, also where it is one of many short waits.
func TestAWaitGivesWay(t *testing.T) {
	skipOneProcessor(t)
	synctest.Test(t, waitGivesWay)
}

func waitGivesWay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one may spin
	const each = 10 * time.Microsecond
	for _, c := range []struct {
		crowded, busy bool // busy: the other processor has a spin
		want          time.Duration
	}{
		{false, false, giveWay},
		{false, true, giveWay},
		{true, false, crowdedGiveWay},
		{true, true, giveWay},
	} {
		o, _ := offering(c.crowded)
		o.yield = func() { time.Sleep(each) }
		var p Polls
		offer := func() {
			for !p.Due() {
			}
			require.True(t, p.Offer())
		}
		begins := func(gave time.Time) {
			p = o.Begin(time.Hour, 0)
			p.Leave() // else it would poll by turns beside the spin
			p.GaveAt(gave)
			offer()
			offer() // it is counted now
		}
		begins(time.Time{})
		if c.busy {
			require.True(t, enterBesides(false))
		}
		begin := p.Gave()
		for p.Gave() == begin {
			if c.busy {
				offer()
				continue
			}
			p.End()
			begins(begin)
		}
		gave := p.Gave().Sub(begin)
		require.GreaterOrEqual(t, gave, c.want, "%+v", c)
		require.LessOrEqual(t, gave, c.want+2*each, "%+v", c)
		p.End()
		if c.busy {
			leave()
		}
	}
}

func TestAProcessorIsIdleWhereFewerPoll(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	require.True(t, idle(0))
	require.True(t, idle(1))
	require.False(t, idle(2))
	require.True(t, enter())
	defer leave()
	require.True(t, idle(0))
	require.False(t, idle(1))
	turning.Add(1)
	defer turning.Add(-1)
	require.False(t, idle(0))
}

func TestYieldsThatLetNoneRunComeLessOften(t *testing.T) {
	for _, c := range []struct {
		most time.Duration
		took []time.Duration
		want fruitless
	}{
		{fruitlessYield, []time.Duration{0, 0, 0}, 3},
		{fruitlessYield, []time.Duration{0, 0, 0, 0, 0, 0, 0}, maxFruitless},
		{fruitlessYield, []time.Duration{0, 0, 0, fruitlessYield + 1}, 0},
		{wakingYield, []time.Duration{fruitlessYield + 1, wakingYield}, 2},
		{wakingYield, []time.Duration{0, 0, 0, 0, 0, wakingYield}, maxWaking},
		{wakingYield, []time.Duration{0, 0, 0, 0, 0, wakingYield + 1}, 0},
	} {
		var f fruitless
		for _, took := range c.took {
			f.count(took, c.most)
		}
		require.Equal(t, c.want, f, "%+v", c)
	}
}
