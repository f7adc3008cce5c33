package selftest_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/selftest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbattach"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// A wrapper puts devices around the two ends of a bridge.
type wrapper func(a, b ntb.Device) (ntb.Device, ntb.Device)

func faulty(o ntbfault.Options) wrapper {
	return func(a, b ntb.Device) (ntb.Device, ntb.Device) { return ntbfault.Pair(a, b, o) }
}

func combining(dropFlush float64) wrapper {
	return func(a, b ntb.Device) (ntb.Device, ntb.Device) {
		return ntbfault.Combine(a, 1, dropFlush), ntbfault.Combine(b, 2, 0)
	}
}

func attach(size int, wrap wrapper) (a, b ntb.Attachment) {
	return ntbattach.Ends(func() (a, b ntb.Device) { return wrap(ntbmem.Pair(size)) })
}

// outcome is what Run returned at an end.
type outcome struct {
	*selftest.Report
	err error
}

// failed returns what a check found, or "" if it passed or was not made.
func (o outcome) failed(name string) string {
	for _, c := range o.Checks {
		if c.Name == name && !c.Pass {
			return c.Found
		}
	}
	return ""
}

// both tests a bridge at both ends.
func both(t *testing.T, late time.Duration, a, b ntb.Attachment) (one, two outcome) {
	t.Helper()
	leak.Check(t)
	o := selftest.Options{Time: 50 * time.Millisecond, Wait: time.Minute, Late: late}
	var wg sync.WaitGroup
	for end, out := range map[ntb.Attachment]*outcome{a: &one, b: &two} {
		wg.Go(func() {
			out.Report, out.err = selftest.Run(t.Context(), end, o)
			if err := end.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return one, two
}

func TestASoundWirePasses(t *testing.T) {
	for name, wrap := range map[string]wrapper{
		"plain":           faulty(ntbfault.Options{}),
		"stores in queue": faulty(ntbfault.Options{StoreDelayMax: 20 * time.Microsecond, DoorbellDelayMax: time.Millisecond, RepeatDoorbell: 0.5}),
		"write-combining": combining(0),
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{4096, 1 << 20} {
				a, b := attach(size, wrap)
				one, two := both(t, time.Minute, a, b)
				for _, o := range []outcome{one, two} {
					require.NoError(t, o.err)
					require.True(t, o.Pass, "%+v", o.Checks)
				}
			}
		})
	}
}

// What is injected at one end fails the check that is for it, at the end that can see it, and both ends end so.
func TestInjectedFaultsAreFound(t *testing.T) {
	const soon, never = 50 * time.Millisecond, time.Minute
	for name, c := range map[string]struct {
		wrap       wrapper
		late       time.Duration
		check, how string
		peer       bool // it is seen at the other end
	}{
		"a word that overtakes":       {overtakes, soon, "order", "were published before their payload", true},
		"missing fences":              {combining(0.5), soon, "words", "it stays until something else is stored", false},
		"late stores":                 {faulty(ntbfault.Options{StoreDelayMin: 2 * soon}), soon, "words", "did not arrive within 50ms", false},
		"lost doorbells":              {faulty(ntbfault.Options{DropDoorbell: 0.3}), soon, "doorbells", "doorbells were lost", false},
		"slow doorbells":              {slowBells, never, "doorbells", "found by polling", false},
		"an old session that goes on": {keeps, never, "link", "a new session found", true},
	} {
		if racing && c.late == soon { // a side that goes on stores what the other one still looks at
			continue
		}
		t.Run(name, func(t *testing.T) {
			a, b := attach(16<<10, c.wrap)
			one, two := both(t, c.late, a, b)
			require.NoError(t, one.err)
			require.NoError(t, two.err)
			require.False(t, one.Pass)
			require.False(t, two.Pass)
			sees := one
			if c.peer {
				sees = two
			}
			require.Contains(t, sees.failed(c.check), c.how, "%+v", sees.Checks)
		})
	}
}

// overtaking is a device from which a word leaves before what was stored before it.
type overtaking struct {
	ntb.Device
	mu   sync.Mutex
	out  ntb.Window
	held []func() // guarded by mu
}

func (d *overtaking) Outbound() ntb.Window { return ntb.SinkWindow(ntb.Basic(d), d.out.Len()) }

func (d *overtaking) Store(off int, p []byte) {
	p = bytes.Clone(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(d.held, func() { d.out.Write(off, p) })
}

func (d *overtaking) Publish(off int, v uint64, _ int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.Publish64(off, v)
	if len(d.held) > 0 {
		time.Sleep(time.Millisecond)
	}
	for _, store := range d.held {
		store()
	}
	d.held = nil
}

func overtakes(a, b ntb.Device) (ntb.Device, ntb.Device) {
	return &overtaking{Device: a, out: a.Outbound()}, b
}

// slow is a device whose doorbells are found by polling alone.
type slow struct{ ntb.Device }

func (d slow) WaitDoorbell(bit int) error {
	err := d.Device.WaitDoorbell(bit)
	time.Sleep(25 * time.Millisecond)
	return err
}

func slowBells(a, b ntb.Device) (ntb.Device, ntb.Device) { return slow{a}, slow{b} }

// kept is the memory of an end that sessions do not change.
type kept struct {
	ntb.Device
	in  []byte
	out ntb.Window
}

func (d kept) Inbound() []byte      { return d.in }
func (d kept) Outbound() ntb.Window { return d.out }

var memory = [2][]byte{ntb.AlignedBytes(16 << 10), ntb.AlignedBytes(16 << 10)}

// keeps has all sessions use the same memory, of which only the words of bring-up are cleared.
func keeps(a, b ntb.Device) (ntb.Device, ntb.Device) {
	for _, m := range memory {
		for off := 0; off < 128; off += 8 {
			ntb.Clear64(m, off)
		}
	}
	window := func(i int) ntb.Window { return ntb.MappedWindow(memory[i], ntb.Cacheable) }
	return kept{a, memory[0], window(1)}, kept{b, memory[1], window(0)}
}

// run runs a test at one end, while peer has the other end's device.
func run(t *testing.T, o selftest.Options, peer func(ntb.Device)) (*selftest.Report, error) {
	t.Helper()
	leak.Check(t)
	a, b := attach(16<<10, faulty(ntbfault.Options{}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if dev, err := b.Open(t.Context()); err == nil {
			peer(dev)
			dev.Close()
		}
	}()
	r, err := selftest.Run(t.Context(), a, o)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	<-ended
	require.False(t, r.Pass)
	require.ErrorContains(t, err, r.Error)
	return r, err
}

// hello says what a side says first.
func hello(dev ntb.Device, word, number, ms uint64) {
	out := dev.Outbound()
	out.Store64(8, number)
	out.Store64(16, ms)
	out.Publish64(0, word)
}

const helloWord = 0x4e544254<<32 | 1

func TestAPeerThatIsNoSelftestIsNamed(t *testing.T) {
	until := func(dev ntb.Device) {
		for dev.WaitDoorbell(0) == nil { // until the other side has left
		}
	}
	for name, c := range map[string]struct {
		peer func(ntb.Device)
		want string
	}{
		"another program": {func(d ntb.Device) { hello(d, 0x55, 0, 0) }, "runs another program, whose first word is 0x55"},
		"another version": {func(d ntb.Device) { hello(d, helloWord+1, 6, 1) }, "is of version 2, this one's of version 1"},
		"no end of time":  {func(d ntb.Device) { hello(d, helloWord, 6, 1<<60) }, "broke the protocol"},
		"an echo": {func(d ntb.Device) {
			in := d.Inbound()
			for ntb.Load64(in, 0) == 0 {
				time.Sleep(time.Millisecond)
			}
			hello(d, helloWord, ntb.Load64(in, 8), 1)
		}, "broke the protocol"},
		"far ahead": {func(d ntb.Device) {
			hello(d, helloWord, 6, 1)
			out := d.Outbound()
			out.Publish64(64, 1<<50)
		}, "it is at step 1125899906842624, and this one at 1"},
		"a wild round": {func(d ntb.Device) {
			hello(d, helloWord, 6, 1)
			out := d.Outbound()
			out.Publish64(128, 1<<40|1<<39)
			out.Publish64(64, 1)
		}, "it has published round 549755813888, and round 1 is not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			o := selftest.Options{Time: time.Millisecond, Wait: time.Minute, Late: 20 * time.Millisecond}
			_, err := run(t, o, func(d ntb.Device) { c.peer(d); until(d) })
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAPeerThatDoesNotComeOrGoes(t *testing.T) {
	o := selftest.Options{Time: time.Millisecond, Wait: 50 * time.Millisecond, Late: time.Second}
	_, err := run(t, o, func(d ntb.Device) { _ = d.WaitDoorbell(0) })
	require.ErrorContains(t, err, "the other side has not come within 50ms, run ntbnet selftest there too")

	o.Wait = time.Minute
	_, err = run(t, o, func(d ntb.Device) { hello(d, helloWord, 6, 1) })
	require.ErrorContains(t, err, "the link was lost")

	leak.Check(t)
	a, b := attach(16<<10, faulty(ntbfault.Options{}))
	defer b.Close()
	defer a.Close()
	o.Wait = 50 * time.Millisecond
	_, err = selftest.Run(t.Context(), a, o)
	require.ErrorContains(t, err, "the other side has not come within 50ms")

	ctx, cancel := context.WithCancel(t.Context())
	o.Wait, o.Phase = time.Minute, func(string) { cancel() }
	_, err = selftest.Run(ctx, a, o)
	require.ErrorIs(t, err, context.Canceled)
}
