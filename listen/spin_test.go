package listen

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// sleeper is a device whose waits for a doorbell do not return while it sleeps.
type sleeper struct {
	ntb.Device
	waits atomic.Bool // WaitDoorbell was called and has not returned
	awake atomic.Pointer[chan struct{}]
}

func (s *sleeper) WaitDoorbell(bit int) error {
	s.waits.Store(true)
	defer s.waits.Store(false)
	err := s.Device.WaitDoorbell(bit)
	if awake := s.awake.Load(); awake != nil {
		<-*awake
	}
	return err
}

// sleep waits until the link's goroutine waits, which does not end before wake is called.
func (s *sleeper) sleep(t *testing.T) (wake func()) {
	awake := make(chan struct{})
	s.awake.Store(&awake)
	returns(t, "the link's goroutine", func() {
		for !s.waits.Load() {
			time.Sleep(time.Millisecond)
		}
	})
	return func() { s.awake.Store(nil); close(awake) }
}

// An Accept that spins finds the next connection of the peer that connected last by itself:
// the link's goroutine, which a doorbell wakes, need not run.
func TestAcceptPollsThePeerThatConnectedLast(t *testing.T) {
	leak.Check(t)
	if runtime.NumCPU() == 1 {
		t.Skip("nothing spins on a machine with one processor")
	}
	table := NewTable()
	x, y := ntbmem.Pair(1 << 20)
	near := &sleeper{Device: x}
	k := join(t, &side{table: table, opts: bounce.Options{Spin: testTimeout}}, near, y, nil)
	l := table.Listen(7, Config{})
	defer l.Close()
	first := k.mustDial(t, 7)
	mustAccept(t, l).Pair.Abort()
	first.Abort()

	wake := near.sleep(t)
	t.Cleanup(func() { wake() })
	accepted := make(chan *bounce.Pair, 1)
	go func() {
		a, err := l.Accept()
		if err != nil {
			t.Error("accept:", err)
		}
		accepted <- a.Pair
	}()
	second := k.mustDial(t, 7)
	returns(t, "Accept", func() { (<-accepted).Abort() })
	second.Abort()
}
