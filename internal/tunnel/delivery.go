package tunnel

import (
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// delivery is a call of Arrived.
type delivery struct {
	inFrame bool          // what was stored before it is in frames
	end     uint32        // number of the first frame behind these
	done    chan struct{} // closed when they are acknowledged
}

// deliverLimits is for how many times the limit without an acknowledgement a delivery
// goes on at the most: the other end may acknowledge as little as it likes each time.
const deliverLimits = 5

// Arrived implements link.Frames. An acknowledgement shows that the other end has what was
// stored: one that acknowledges nothing, though it takes what others store, keeps nobody here.
func (t *Tunnel) Arrived(d time.Duration) {
	lock.Device()
	t.mu.Lock()
	if t.State() != arq.Up {
		t.mu.Unlock()
		return
	}
	now := time.Now()
	silent := t.arq.Silent(now)
	w := &delivery{done: make(chan struct{})}
	t.deliveries = append(t.deliveries, w)
	t.arq.EndFrame(now)
	t.push(now)
	t.delivered()
	t.unlockAndSend()
	end := now.Add(deliverLimits * d)
	limit := time.NewTimer(d - silent)
	defer limit.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-t.down:
			return
		case <-limit.C:
		}
		t.mu.Lock()
		now := time.Now()
		left := min(d-t.arq.Silent(now), end.Sub(now))
		if left <= 0 {
			t.deliveries = slices.DeleteFunc(t.deliveries, func(o *delivery) bool { return o == w })
		}
		t.mu.Unlock()
		if left <= 0 {
			return
		}
		limit.Reset(left)
	}
}

// ask has a frame ask for an acknowledgement, behind all that was stored before the deliveries.
// It leaves that for later if there is no room. The caller holds mu.
func (t *Tunnel) ask(now time.Time) {
	n := len(t.deliveries)
	if n == 0 || t.deliveries[n-1].inFrame || t.arq.State().Over() || !t.late.empty() || t.arq.Kept() > 0 && !t.arq.Ask(now) {
		return
	}
	for _, w := range t.deliveries {
		if !w.inFrame {
			w.inFrame, w.end = true, t.arq.End()
		}
	}
}

// delivered ends the deliveries of which all is acknowledged. The caller holds mu.
func (t *Tunnel) delivered() {
	t.deliveries = slices.DeleteFunc(t.deliveries, func(w *delivery) bool {
		done := w.inFrame && int32(t.arq.Acknowledged()-w.end) >= 0
		if done {
			close(w.done)
		}
		return done
	})
}
