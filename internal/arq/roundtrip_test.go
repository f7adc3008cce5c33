package arq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFramesThatAreLateAreNotTakenForLost(t *testing.T) {
	start := time.Unix(1, 0)
	r := roundTrip{limit: ResendFirst}
	at := func(d time.Duration) time.Time { return start.Add(d) }
	r.sent(1, at(0))
	r.sent(2, at(50*ms)) // not timed
	require.False(t, r.acknowledged(1, at(60*ms)))
	require.True(t, r.acknowledged(3, at(100*ms)))
	require.Equal(t, 400*ms, r.limit)
	// The frame is sent again, so an acknowledgement may be of either.
	r.sent(3, at(200*ms))
	r.stop()
	require.False(t, r.acknowledged(4, at(201*ms)))
	require.Equal(t, 400*ms, r.limit)
	r.sent(4, at(300*ms))
	require.True(t, r.acknowledged(5, at(1000*ms)))
	require.Equal(t, 2800*ms, r.limit)
	// The limit is bounded both ways.
	r.sent(5, at(2000*ms))
	require.True(t, r.acknowledged(6, at(9000*ms)))
	require.Equal(t, ResendMost, r.limit)
	for i := range uint32(100) {
		now := at(time.Duration(10+i) * time.Second)
		r.sent(6+i, now)
		require.True(t, r.acknowledged(7+i, now.Add(ms)))
	}
	require.Equal(t, ResendFirst, r.limit)
	// Numbers wrap.
	r.sent(1<<32-1, at(0))
	require.True(t, r.acknowledged(0, at(100*ms)))
	require.Zero(t, r.start)
}
