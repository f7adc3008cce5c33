package ntbmem_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

func TestConformance(t *testing.T) {
	for name, size := range map[string]int{"4 KiB": 4 << 10, "64 KiB": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			ntbtest.Run(t, func(*testing.T) (a, b ntb.Device) { return ntbmem.Pair(size) })
		})
	}
}

// In a bubble a wait for a doorbell counts as blocked. So tests of higher layers
// can see that all goroutines sleep.
func TestDoorbellInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ntbmem.Pair(64)
		woken := make(chan error, 2)
		go func() {
			woken <- b.WaitDoorbell(3)
			woken <- b.WaitDoorbell(3)
		}()
		synctest.Wait()
		if len(woken) != 0 {
			t.Fatal("woken, but nobody rang")
		}
		a.RingDoorbell(3)
		synctest.Wait()
		if len(woken) != 1 {
			t.Fatalf("%d waits returned after one doorbell, want 1", len(woken))
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		a.Close()
		synctest.Wait()
		if err := <-woken; !errors.Is(err, ntb.ErrLinkDown) {
			t.Fatalf("got %v, want %v", err, ntb.ErrLinkDown)
		}
		b.Close()
	})
}

func TestWindowMustBeLines(t *testing.T) {
	for _, size := range []int{-64, 0, 63, 100} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("window of %d bytes: no panic", size)
				}
			}()
			ntbmem.Pair(size)
		}()
	}
}
