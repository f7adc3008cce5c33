package onesided

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// Threads is how threads of C sleep: in a call of the system's, on a word. A thread whose goroutine sleeps on a channel
// gives its place to another thread before, and takes the place of one when it is woken. Those are two switches more each
// time.
type Threads struct {
	Sleep func(word *uint32, atMost time.Duration) // until Wake, unless the word is not 0; 0 for no limit
	Wake  func(word *uint32)                       // after a store to the word
}

// bell is what wakes one sleeper.
type bell struct {
	rung chan struct{} // for a goroutine: has room for one
	word uint32        // for a thread: 1 once it was rung
}

// ring wakes the sleeper. It is called once until clear.
func (b *bell) ring(threads *Threads) {
	if threads == nil {
		b.rung <- struct{}{}
		return
	}
	atomic.StoreUint32(&b.word, 1)
	threads.Wake(&b.word)
}

// clear takes back a ring that may have come, when no other can come.
func (b *bell) clear() {
	select {
	case <-b.rung:
	default:
	}
	b.word = 0
}

// parkThread is the sleep of park for a thread of C.
func (s *Space) parkThread(ctx context.Context, b *bell, look func() bool, again time.Duration, armed bool) (bool, error) {
	for slept := false; ; slept = true {
		err := cmp.Or(s.Err(), ctx.Err()) // before the look: the store may have come first
		switch {
		case look():
			return true, nil
		case err != nil, slept && !armed, atomic.LoadUint32(&b.word) != 0:
			return false, err
		}
		s.sleepers.threads.Sleep(&b.word, again)
	}
}
