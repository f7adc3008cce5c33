package arq

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var states = []State{Opening, Up, Draining, Lingering, Ended, Closed}

func TestLegalChanges(t *testing.T) {
	legal := map[State][]State{
		Opening:   {Up, Ended},
		Up:        {Draining, Lingering, Ended},
		Draining:  {Lingering, Ended},
		Lingering: {Closed},
		Ended:     {Closed},
	}
	for _, from := range states {
		for _, to := range states {
			require.Equal(t, slices.Contains(legal[from], to), from.MayBecome(to), "from %v to %v", from, to)
		}
	}
	require.Equal(t, "state 9", State(9).String())
}

var testConfig = Config{Buf: make([]byte, 256), Frames: 16, AckAt: 100}

// inState returns an end in that state. The other end has said nothing since.
func inState(s State, now time.Time) *End {
	e := Answerer(Config{Buf: make([]byte, 256), Frames: 16, AckAt: 100})
	switch s {
	case Opening:
		e = Asker(testConfig, now)
	case Up:
		sendAll(&e, now)
		e.Arrived(Arrival{Kind: Ack, Ack: 1}, now)
	case Draining:
		e.Disable()
	case Lingering:
		e.Close(now)
	case Ended:
		e.Abort()
	case Closed:
		e.Abort()
		e.Close(now)
	}
	return &e
}

// Whatever happens in whatever state leads to the state of the table.
func TestWhatHappensInEachState(t *testing.T) {
	now := time.Unix(1, 0)
	row := func(s ...State) []State { return s }
	for what, c := range map[string]struct {
		do   func(e *End)
		want []State // from each of states
	}{
		"nothing": {func(*End) {}, states},
		"accept": {func(e *End) { e.Accepted(1) },
			row(Up, Up, Draining, Lingering, Ended, Closed)},
		"open again": {func(e *End) { e.OpenedAgain(now) }, states},
		"data": {func(e *End) { e.Arrived(Arrival{Kind: Data, Ack: 1, Expects: 2, Bytes: 8}, now) },
			states},
		"close": {func(e *End) { e.Arrived(Arrival{Kind: Close, Ack: 1, Expects: 2, Bytes: 8}, now) },
			row(Opening, Ended, Ended, Closed, Ended, Closed)},
		"close came again": {func(e *End) { e.Arrived(Arrival{Kind: Close, Ack: 1, Verdict: Duplicate, Expects: 2, Bytes: 8}, now) },
			states},
		"close behind a gap": {func(e *End) { e.Arrived(Arrival{Kind: Close, Ack: 1, Verdict: Gap, Expects: 1, Bytes: 8}, now) },
			states},
		"its close is acknowledged": {func(e *End) { finish(e, now); e.Arrived(Arrival{Kind: Ack, Ack: 2}, now) },
			row(Opening, Up, Ended, Closed, Ended, Closed)},
		"Disable": {(*End).Disable, row(Ended, Draining, Draining, Lingering, Ended, Closed)},
		"Close": {func(e *End) { e.Close(now) },
			row(Closed, Lingering, Lingering, Lingering, Closed, Closed)},
		"Abort":   {(*End).Abort, row(Ended, Ended, Ended, Closed, Ended, Closed)},
		"Restart": {func(e *End) { e.Restart(now) }, states},
		"Probe":   {func(e *End) { e.Probe(now) }, states},
		"a minute passes": {func(e *End) { e.Expire(now.Add(time.Minute)) },
			row(Opening, Up, Draining, Closed, Ended, Closed)},
	} {
		for i, s := range states {
			e := inState(s, now)
			require.Equal(t, s, e.State())
			c.do(e)
			require.Equal(t, c.want[i], e.State(), "%s in state %v", what, s)
			if e.State().Over() {
				require.Zero(t, e.Kept())
				f, ok := e.Next(now.Add(time.Minute))
				require.True(t, !ok || f.Kind == Ack, "%s in state %v: %v is sent", what, s, f.Kind)
			}
		}
	}
}

// finish sends all that there is to send, and close behind it.
func finish(e *End, now time.Time) {
	e.Finish(now)
	sendAll(e, now)
}

// sendAll sends all that there is to send, and returns it.
func sendAll(e *End, now time.Time) (all []Frame) {
	for f, ok := e.Next(now); ok; f, ok = e.Next(now) {
		e.Sent(&f, now)
		all = append(all, f)
	}
	return all
}

func kinds(all []Frame) (k []Kind) {
	for _, f := range all {
		k = append(k, f.Kind)
	}
	return k
}
