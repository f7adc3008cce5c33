package arq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// clock is a time that a test makes up.
type clock struct{ time.Time }

func newClock() *clock { return &clock{time.Unix(1, 0)} }

func (c *clock) pass(d time.Duration) time.Time {
	c.Time = c.Add(d)
	return c.Time
}

// data has an end keep a frame with n bytes.
func data(e *End, n int, now time.Time) {
	if !e.Begin(n) {
		panic("no room")
	}
	e.Extend(n)
	e.EndFrame(now)
}

func TestOpenIsSaidEvery50Milliseconds(t *testing.T) {
	c := newClock()
	e := Asker(testConfig, c.Time)
	require.Equal(t, []Kind{Open}, kinds(sendAll(&e, c.Time)))
	for range 5 {
		require.Equal(t, c.Add(50*ms), e.Deadline())
		e.Expire(c.pass(49 * ms))
		require.Empty(t, sendAll(&e, c.Time))
		e.Expire(c.pass(1 * ms))
		require.Equal(t, []Kind{Open}, kinds(sendAll(&e, c.Time)))
	}
	require.True(t, e.Accepted(100))
	require.False(t, e.Accepted(100), "it comes again")
	require.Empty(t, sendAll(&e, c.Time))
	require.Zero(t, e.Deadline())
}

// Accept comes before all data, also by a new way and when open comes again.
func TestAcceptComesFirst(t *testing.T) {
	c := newClock()
	e := Answerer(testConfig)
	data(&e, 8, c.Time)
	want := []Kind{Accept, Data}
	require.Equal(t, want, kinds(sendAll(&e, c.Time)))
	e.Restart(c.Time)
	require.Equal(t, want, kinds(sendAll(&e, c.Time)))
	e.OpenedAgain(c.Time)
	require.Equal(t, want, kinds(sendAll(&e, c.Time)))
	e.Expire(c.pass(200 * ms))
	require.Equal(t, want, kinds(sendAll(&e, c.Time)))
	e.Arrived(Arrival{Kind: Ack, Ack: 1}, c.Time)
	e.Restart(c.Time)
	require.Equal(t, []Kind{Data}, kinds(sendAll(&e, c.Time)), "it was heard of")
	e.OpenedAgain(c.Time)
	require.Equal(t, []Kind{Accept}, kinds(sendAll(&e, c.Time)), "the open was late")
}

// What is not acknowledged is sent again after 200 ms, and after twice as long each time, up
// to 3.2 s. Frames that are sent meanwhile do not put that off. An acknowledgement does.
func TestWhatIsNotAcknowledgedIsSentAgain(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	sendAll(e, c.Time)
	data(e, 8, c.Time)
	data(e, 8, c.Time)
	require.Zero(t, e.Deadline(), "nothing was sent yet")
	require.Len(t, sendAll(e, c.Time), 2)
	for _, wait := range []time.Duration{200, 400, 800, 1600, 3200, 3200} {
		require.Equal(t, c.Add(wait*ms), e.Deadline())
		e.Expire(c.pass(wait*ms - 1))
		data(e, 1, c.Time)
		require.Len(t, sendAll(e, c.Time), 1)
		require.Equal(t, c.Add(1), e.Deadline())
		e.Expire(c.pass(1))
		require.Len(t, sendAll(e, c.Time), e.Kept())
	}
	e.Arrived(Arrival{Kind: Ack, Ack: 3}, c.pass(100*ms))
	require.Equal(t, c.Add(3200*ms), e.Deadline(), "it is unknown which of the copies this acknowledges")
	require.Equal(t, 6, e.Kept())
	require.EqualValues(t, 6, e.Stats().Restarts)
	e.Arrived(Arrival{Kind: Ack, Ack: 9}, c.Time)
	require.Zero(t, e.Deadline())
	data(e, 1, c.Time)
	sendAll(e, c.Time)
	e.Arrived(Arrival{Kind: Ack, Ack: 10}, c.pass(30*ms))
	data(e, 1, c.Time)
	sendAll(e, c.Time)
	require.Equal(t, c.Add(200*ms), e.Deadline(), "a round trip was measured")
	require.EqualValues(t, 10, e.Stats().Sent)
}

// A new way has all sent again at once, in their order, and the timeout is short again.
func TestANewWayHasAllSentAgain(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	for range 3 {
		data(e, 8, c.Time)
	}
	sendAll(e, c.Time)
	e.Expire(c.pass(200 * ms))
	sendAll(e, c.Time)
	require.Equal(t, c.Add(400*ms), e.Deadline())
	e.Restart(c.pass(ms))
	require.Equal(t, c.Add(200*ms), e.Deadline())
	for i, f := range sendAll(e, c.Time) {
		require.EqualValues(t, 1+i, f.Seq)
	}
	require.EqualValues(t, 3, e.Stats().Sent)
	require.EqualValues(t, 6, e.Stats().Resent)
}

func TestAProbeIsSentWhereNothingElseIs(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	e.Probe(c.Time)
	require.Equal(t, []Kind{Data}, kinds(sendAll(e, c.Time)))
	e.Probe(c.Time)
	require.Empty(t, sendAll(e, c.Time), "one is under way")
	e.Expire(c.pass(200 * ms))
	require.Len(t, sendAll(e, c.Time), 1)
	e.Probe(c.Time)
	require.Len(t, sendAll(e, c.Time), 1, "the next would come late")
	require.Equal(t, c.Add(200*ms), e.Deadline())
}

func TestWhatIsOwedIsAcknowledged(t *testing.T) {
	came := func(verdict Verdict, expects uint32, n int) Arrival {
		return Arrival{Kind: Data, Ack: 1, Verdict: verdict, Expects: expects, Bytes: n}
	}
	c := newClock()
	e := inState(Up, c.Time)
	e.Arrived(came(Take, 2, 60), c.Time)
	require.Empty(t, sendAll(e, c.Time), "perhaps a frame of data carries it")
	require.Equal(t, c.Add(5*ms), e.Deadline())
	e.Arrived(came(Take, 3, 10), c.pass(4*ms))
	require.Equal(t, c.Add(ms), e.Deadline(), "the first one counts")
	e.Expire(c.pass(ms))
	require.Zero(t, e.Deadline())
	require.Equal(t, []Frame{{Kind: Ack, Ack: 3}}, sendAll(e, c.Time))

	e.Arrived(came(Take, 4, 60), c.Time)
	e.Arrived(came(Take, 5, 60), c.Time)
	require.Equal(t, []Frame{{Kind: Ack, Ack: 5}}, sendAll(e, c.Time), "it is much")

	e.Arrived(came(Duplicate, 5, 10), c.Time)
	require.Equal(t, []Frame{{Kind: Ack, Ack: 5}}, sendAll(e, c.Time), "it came again")
	e.Arrived(came(Gap, 5, 10), c.Time)
	require.Zero(t, e.Deadline(), "what comes behind a gap comes again")

	e.Arrived(came(Take, 6, 10), c.Time)
	data(e, 8, c.Time)
	require.Equal(t, []Kind{Data}, kinds(sendAll(e, c.Time)))
	require.Equal(t, c.Add(200*ms), e.Deadline(), "the frame of data carried it")

	// Goroutines that take frames one behind the other may come in another order.
	e.Arrived(came(Take, 8, 60), c.Time)
	e.Arrived(came(Take, 7, 60), c.Time)
	require.Equal(t, []Frame{{Kind: Ack, Ack: 8}}, sendAll(e, c.Time))
}

// An acknowledgement that finds no room does not have its time come again and again.
func TestADelayedAcknowledgementIsDueOnce(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	e.Arrived(Arrival{Kind: Data, Ack: 1, Expects: 2, Bytes: 8}, c.Time)
	data(e, 8, c.Time) // it is next, and has no room either
	e.Expire(c.pass(5 * ms))
	require.Zero(t, e.Deadline())
}

func TestAnAcknowledgementOfWhatWasNotSentIsRefused(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	data(e, 8, c.Time)
	for ack, want := range map[uint32]bool{0: true, 1: true, 2: false, 1 << 30: false, 1<<32 - 1: true} {
		ok := e.Arrived(Arrival{Kind: Ack, Ack: ack}, c.Time)
		require.Equal(t, want, ok, "%d", ack)
	}
	sendAll(e, c.Time)
	ok := e.Arrived(Arrival{Kind: Ack, Ack: 3}, c.Time)
	require.False(t, ok)
	ok = e.Arrived(Arrival{Kind: Ack, Ack: 2}, c.Time)
	require.True(t, ok)
}

// Close comes behind all that was stored, and ends the end when it is acknowledged.
func TestCloseComesLast(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	require.False(t, e.Finish(c.Time), "nobody has closed it")
	require.True(t, e.Begin(8))
	e.Extend(8)
	e.Close(c.Time)
	require.True(t, e.Finish(c.Time))
	require.False(t, e.Finish(c.Time), "once")
	require.False(t, e.Ask(c.Time), "close is the last")
	require.Equal(t, []Kind{Data, Close}, kinds(sendAll(e, c.Time)))
	e.Expire(c.pass(200 * ms))
	require.Equal(t, []Kind{Data, Close}, kinds(sendAll(e, c.Time)))
	e.Arrived(Arrival{Kind: Ack, Ack: 2}, c.Time)
	require.Equal(t, Lingering, e.State())
	e.Arrived(Arrival{Kind: Ack, Ack: 3}, c.Time)
	require.Equal(t, Closed, e.State())
	require.Zero(t, e.Deadline())
}

func TestLingeringEndsAfter30Seconds(t *testing.T) {
	c := newClock()
	end := c.Add(30 * time.Second)
	e := inState(Up, c.Time)
	e.Close(c.Time)
	finish(e, c.Time)
	for e.State() == Lingering {
		require.False(t, e.Deadline().After(end))
		e.Expire(c.pass(e.Deadline().Sub(c.Time)))
		sendAll(e, c.Time)
	}
	require.Equal(t, end, c.Time)
	require.Equal(t, Closed, e.State())
}

// A frame that was not sent asks as well as one of its own.
func TestAskJoinsWhatWasNotSent(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	data(e, 8, c.Time)
	e.Ask(c.Time)
	e.Ask(c.Time)
	all := sendAll(e, c.Time)
	require.Len(t, all, 1)
	require.True(t, all[0].Asks)
	end := e.End()
	e.Ask(c.Time)
	all = sendAll(e, c.Time)
	require.Len(t, all, 1)
	require.Empty(t, all[0].Body)
	require.True(t, e.Arrived(Arrival{Kind: Ack, Ack: 2}, c.Time))
	require.Equal(t, end, e.Acknowledged())
	for range 16 {
		e.Ask(c.Time)
		sendAll(e, c.Time)
	}
	require.False(t, e.Ask(c.Time), "there is room for close only")
}

// What asks is acknowledged at once, and again if it comes again.
func TestWhatAsksIsAcknowledgedAtOnce(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	sendAll(e, c.Time)
	for _, v := range []Verdict{Take, Duplicate} {
		require.Empty(t, sendAll(e, c.Time))
		require.True(t, e.Arrived(Arrival{Kind: Data, Ack: 1, Verdict: v, Expects: 2, Bytes: 1, Asks: true}, c.Time))
		require.Equal(t, []Kind{Ack}, kinds(sendAll(e, c.Time)))
	}
}

func TestTheTimeOfSilenceIsSinceTheFirstFrame(t *testing.T) {
	c := newClock()
	e := inState(Up, c.Time)
	require.Zero(t, e.Silent(c.pass(ms)))
	data(e, 8, c.Time)
	data(e, 8, c.pass(10*ms))
	require.Equal(t, 15*ms, e.Silent(c.pass(5*ms)))
	sendAll(e, c.Time)
	e.Arrived(Arrival{Kind: Ack, Ack: 2}, c.Time)
	require.Equal(t, 3*ms, e.Silent(c.pass(3*ms)))
	e.Arrived(Arrival{Kind: Ack, Ack: 3}, c.Time)
	require.Zero(t, e.Silent(c.pass(ms)))
}
