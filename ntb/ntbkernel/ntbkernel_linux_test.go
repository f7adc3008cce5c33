//go:build amd64 || arm64

package ntbkernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/stretchr/testify/require"
)

const testTimeout = 30 * time.Second

// pair returns both ends of a bridge whose link is up.
func pair(t *testing.T, size int) (f *fake, a, b *Attachment) {
	f = newFake(t, size)
	f.mend()
	return f, f.attach(0, Options{}), f.attach(1, Options{})
}

// opened is the result of an Open.
type opened struct {
	ntb.Device
	err error
}

// begin opens a session of one side.
func begin(t *testing.T, a ntb.Attachment) chan opened {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	result := make(chan opened, 1)
	go func() {
		defer cancel()
		d, err := a.Open(ctx)
		result <- opened{d, err}
	}()
	return result
}

// open opens a session on both sides.
func open(t *testing.T, a, b ntb.Attachment) (x, y ntb.Device) {
	t.Helper()
	other := begin(t, b)
	mine := <-begin(t, a)
	theirs := <-other
	require.NoError(t, errors.Join(mine.err, theirs.err))
	return mine.Device, theirs.Device
}

// talk has each side store a word, and ring.
func talk(t *testing.T, x, y ntb.Device, v uint64) {
	t.Helper()
	for _, d := range [][2]ntb.Device{{x, y}, {y, x}} {
		out := d[0].Outbound()
		out.Publish64(8, v)
		for bit := range ntbfixed.Doorbells {
			d[0].RingDoorbell(bit)
			require.NoError(t, d[1].WaitDoorbell(bit))
		}
		require.Equal(t, v, ntb.Load64(d[1].Inbound(), 8))
	}
}

// goesDown waits until the link of a session is down.
func goesDown(t *testing.T, d ntb.Device) {
	t.Helper()
	var err error
	for err == nil {
		err = d.WaitDoorbell(0)
	}
	require.ErrorIs(t, err, ntb.ErrLinkDown)
}

// lateState has a generation begin while a state from before it is on its way.
type lateState struct {
	port
	line *line
	next *generation
}

func (p *lateState) state() (State, error) {
	p.line.now.Store(p.next)
	return State{}, nil
}

func TestALookFromBeforeAGenerationDoesNotEndIt(t *testing.T) {
	l := &line{}
	g := &generation{line: l, number: 2, down: make(chan struct{})}
	l.port = &lateState{line: l, next: g}
	_, err := l.look()
	require.NoError(t, err)
	select {
	case <-g.down:
		require.Fail(t, "it has ended")
	default:
	}
	require.True(t, g.replaced(), "the next look ends it")
	<-g.down
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) {
		_, a, b := pair(t, 68<<10)
		return open(t, a, b)
	})
}

func TestSessions(t *testing.T) {
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) {
		_, x, y := pair(t, 8<<10)
		return x, y
	})
}

// A side whose doorbells are not safe to use looks from time to time.
func TestSessionsWithoutDoorbells(t *testing.T) {
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) {
		f := newFake(t, 8<<10)
		f.doorbells, f.combining = 0, false
		f.mend()
		return f.attach(0, Options{}), f.attach(1, Options{})
	})
}

// The link is cut, and comes up again with other memory. The session ends, by an event; what it still stores
// reaches nobody; and the next one is in the memory that is there then.
func TestTheLinkIsCutAndMended(t *testing.T) {
	leak.Check(t)
	f, a, b := pair(t, 8<<10)
	for round := range uint64(20) {
		x, y := open(t, a, b)
		require.NoError(t, a.Why())
		talk(t, x, y, round+1)
		f.cut()
		goesDown(t, x)
		goesDown(t, y)
		require.True(t, x.Caps().Revocable.Gone(), "its memory shows zeros")
		x.Order()
		out := x.Outbound()
		out.Publish64(8, 99)

		mine, theirs := begin(t, a), begin(t, b)
		require.Eventually(t, func() bool { return errors.Is(a.Why(), syscall.ENOTCONN) }, testTimeout, time.Millisecond)
		f.mend()
		next, peer := <-mine, <-theirs
		require.NoError(t, errors.Join(next.err, peer.err))
		out.Publish64(8, 99)
		require.Zero(t, ntb.Load64(peer.Inbound(), 8))
		talk(t, next, peer, round+1)
		require.NoError(t, errors.Join(x.Close(), y.Close(), next.Close(), peer.Close()))
	}
}

// The link comes up again while one side waits for the other to open a session.
func TestAGenerationEndsBeforeASession(t *testing.T) {
	leak.Check(t)
	f, a, b := pair(t, 8<<10)
	mine := begin(t, a)
	for range 5 {
		f.cut()
		f.mend()
	}
	theirs := begin(t, b)
	x, y := <-mine, <-theirs
	require.NoError(t, errors.Join(x.err, y.err))
	talk(t, x, y, 1)
	require.NoError(t, errors.Join(x.Close(), y.Close()))
}

// A machine begins anew, and no event says so. The next session is in the memory that is there then.
func TestAGenerationEndsWithoutAnEvent(t *testing.T) {
	leak.Check(t)
	f, a, b := pair(t, 8<<10)
	for range 5 {
		x, y := open(t, a, b)
		f.reset()
		next, peer := open(t, a, b)
		require.False(t, x.LinkUp())
		require.False(t, y.LinkUp())
		talk(t, next, peer, 1)
		require.NoError(t, errors.Join(x.Close(), y.Close(), next.Close(), peer.Close()))
	}
}

// The bridge is removed while it is used, and comes back.
func TestABridgeIsRemovedAndComesBack(t *testing.T) {
	leak.Check(t)
	f, a, b := pair(t, 8<<10)
	x, y := open(t, a, b)
	f.remove(0)
	goesDown(t, x)
	goesDown(t, y)
	for range 2 {
		_, err := a.Open(t.Context())
		require.ErrorIs(t, err, syscall.ENODEV)
	}
	f.plug(0)
	next, peer := open(t, a, b)
	talk(t, next, peer, 1)
	require.NoError(t, errors.Join(x.Close(), y.Close(), next.Close(), peer.Close()))

	f.remove(1)
	theirs := begin(t, b)
	require.ErrorIs(t, (<-theirs).err, syscall.ENODEV)
}

// A process stores something, and ends in order. It is there for the other side, although the memory goes
// with the process.
func TestWhatHasArrivedStays(t *testing.T) {
	leak.Check(t)
	for range 50 {
		_, a, b := pair(t, 1<<20)
		x, y := open(t, a, b)
		out := x.Outbound()
		out.Publish64(out.Len()-8, 7)
		require.NoError(t, errors.Join(x.Close(), a.Close()))
		goesDown(t, y)
		require.False(t, y.Caps().Revocable.Gone())
		require.EqualValues(t, 7, ntb.Load64(y.Inbound(), len(y.Inbound())-8))
		require.NoError(t, errors.Join(y.Close(), b.Close()))
	}
}

// A process that ends does not wait for one that is dead, or that has no session.
func TestNobodyWaitsForTheDead(t *testing.T) {
	leak.Check(t)
	_, a, b := pair(t, 8<<10)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	f, a, b := pair(t, 8<<10)
	x, y := open(t, a, b)
	f.cut()
	require.NoError(t, errors.Join(a.Close(), b.Close(), x.Close(), y.Close()))
}

// Doorbells of a device share those of the hardware.
func TestDoorbellsAreShared(t *testing.T) {
	leak.Check(t)
	f, a, b := pair(t, 8<<10)
	x, y := open(t, a, b)
	f.mu.Lock()
	before := f.sides[1].rung
	f.mu.Unlock()
	for bit := range ntbfixed.Doorbells {
		x.RingDoorbell(bit)
		require.NoError(t, y.WaitDoorbell(bit))
	}
	require.NoError(t, errors.Join(x.Close(), y.Close()))
	f.mu.Lock()
	defer f.mu.Unlock()
	for bell, want := range []int{6 + 1, 5, 5, 0} { // the end of the session rings, too
		require.Equal(t, want, f.sides[1].rung[bell]-before[bell], "doorbell %d", bell)
	}
}

// Of large windows no more is used than is wanted, and of two sides that want less, the lesser.
func TestWindowsHaveABound(t *testing.T) {
	leak.Check(t)
	f := newFake(t, 16<<20)
	f.size[1] = 64 << 10
	f.mend()
	a, b := f.attach(0, Options{Window: 1 << 20}), f.attach(1, Options{Window: 256 << 10})
	x, y := open(t, a, b)
	require.Equal(t, []int{256 << 10, 60 << 10}, []int{len(x.Inbound()), len(y.Inbound())})
	out, back := x.Outbound(), y.Outbound()
	require.Equal(t, []int{60 << 10, 256 << 10}, []int{out.Len(), back.Len()})
	require.Equal(t, ntb.WriteCombining, out.Kind())
	require.NoError(t, errors.Join(x.Close(), y.Close()))
	_, err := Attach("0000:b1:00.0", Options{Window: 4097})
	require.ErrorIs(t, err, syscall.EINVAL)
}

// The modules settle which node a side is when they first meet.
func TestTheNumberOfANode(t *testing.T) {
	leak.Check(t)
	f := newFake(t, 8<<10)
	f.sides[1].node = 0
	a, b := f.attach(0, Options{}), f.attach(1, Options{})
	node, err := a.Node(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, node)

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = b.Node(ctx)
	require.ErrorIs(t, err, syscall.ENOTCONN)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	settled := make(chan int, 1)
	go func() {
		n, _ := b.Node(context.Background())
		settled <- n
	}()
	f.mu.Lock()
	f.sides[1].node = 2
	f.mu.Unlock()
	f.mend()
	require.Equal(t, 2, <-settled)
	require.NoError(t, b.Close())
	_, err = b.Node(t.Context())
	require.ErrorIs(t, err, ntb.ErrClosed)
}

// Each state says what is missing, and what to do.
func TestWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		state State
		want  string
	}{
		{State{}, "the link is down"},
		{State{LinkUp: true}, "modprobe ntb_cdev there"},
		{State{LinkUp: true, Peer: ^uint32(0)}, "modprobe ntb_cdev there"},
		{State{LinkUp: true, Peer: 4}, "runs ntb_transport"},
		{State{LinkUp: true, Peer: moduleWord | 9}, "speaks version 9, this one's 1"},
		{State{LinkUp: true, NoWindow: true}, "no memory of this host fits a window of the bridge: dmesg says which cma= or IOMMU helps"},
		{State{LinkUp: true, Peer: moduleWord | moduleABI, PeerNoWindow: true}, "the other host has no window"},
		{State{LinkUp: true, Peer: moduleWord | moduleABI}, "have not agreed yet"},
		{State{LinkUp: true, Peer: 0x12345678}, "another module at its end, whose first word is 0x12345678"},
	} {
		err := tt.state.missing("0000:b1:00.0")
		require.ErrorContains(t, err, tt.want)
		require.ErrorContains(t, err, "bridge 0000:b1:00.0")
		require.ErrorIs(t, err, syscall.ENOTCONN)
	}
	gone := State{LinkUp: true, Ready: true, Gone: true}
	require.ErrorIs(t, gone.missing("x"), syscall.ENODEV)
	require.NoError(t, (&State{LinkUp: true, Ready: true}).missing("x"))
}

// made makes files, and directories of names that end with a slash.
func made(t *testing.T, names ...string) system {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if name[len(name)-1] == '/' {
			require.NoError(t, os.MkdirAll(path, 0o700))
		} else {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
	}
	return system{filepath.Join(root, "dev"), filepath.Join(root, "sys")}
}

// The bridge of a machine is found, or the error says what to do.
func TestFind(t *testing.T) {
	const bus = "sys/bus/ntb/devices/0000:b1:00.0/"
	found, err := made(t, "dev/ntb/0000:b1:00.0").find()
	require.NoError(t, err)
	require.Equal(t, "0000:b1:00.0", found)
	_, err = made(t, "dev/ntb/0000:b1:00.0", "dev/ntb/0000:b2:00.0").find()
	require.ErrorContains(t, err, "as in ntb:0000:b1:00.0: 0000:b1:00.0, 0000:b2:00.0")
	for want, s := range map[string]system{
		"lspci -nn":                made(t),
		"modprobe ntb_cdev; if it": made(t, bus),
	} {
		_, err = s.find()
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, syscall.ENODEV)
	}
	for driver, want := range map[string]string{"ntb_transport": "the module ntb_transport has bridge", "ntb_cdev": "a container needs the node"} {
		s := made(t, bus)
		require.NoError(t, os.Symlink("../drivers/"+driver, s.bus("0000:b1:00.0", "driver")))
		_, err = s.open("0000:b1:00.0")
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, syscall.ENODEV)
	}
	_, err = made(t, bus).open("0000:b2:00.0")
	require.ErrorContains(t, err, "there is no bridge 0000:b2:00.0")
	require.ErrorContains(t, err, "there are 0000:b1:00.0")
	require.ErrorIs(t, err, syscall.ENODEV)
}

// Another process has the node, and is named.
func TestWhoHasTheNode(t *testing.T) {
	holder := "sys/class/misc/ntb!0000:b1:00.0/holder"
	s := made(t, "dev/ntb/0000:b1:00.0", holder)
	require.Empty(t, s.holder("0000:b1:00.0"))
	require.ErrorContains(t, s.refused("0000:b1:00.0", syscall.EBUSY), "fuser "+s.node("0000:b1:00.0")+" shows it")
	name, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.class("0000:b1:00.0", "holder"), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600))
	require.Equal(t, fmt.Sprintf("process %d (%s)", os.Getpid(), name[:len(name)-1]), s.holder("0000:b1:00.0"))
	require.Contains(t, s.about("0000:b1:00.0"), "held by process ")
	if os.Geteuid() != 0 {
		require.NoError(t, os.Chmod(s.node("0000:b1:00.0"), 0))
		_, err = s.open("0000:b1:00.0")
		require.ErrorIs(t, err, syscall.EACCES)
		require.ErrorContains(t, err, "udev rule")
	}
}

// function makes a PCI function of a machine, with a driver and a module of the NTB bus where these are given.
func (s system) function(t *testing.T, address, vendor, device, class, driver, module string) {
	t.Helper()
	for name, text := range map[string]string{"vendor": vendor, "device": device, "class": class,
		"resource": "0x00000000fe000000 0x00000000fe00ffff 0x0000000000140204\n0x0 0x0 0x0\n0x0000004000000000 0x0000004003ffffff 0x000000000014220c\n"} {
		require.NoError(t, os.MkdirAll(s.pci(address), 0o700))
		require.NoError(t, os.WriteFile(s.pci(address, name), []byte(text+"\n"), 0o600))
	}
	if driver != "" {
		require.NoError(t, os.Symlink("../../drivers/"+driver, s.pci(address, "driver")))
	}
	if module != "" {
		require.NoError(t, os.MkdirAll(s.bus(address), 0o700))
		require.NoError(t, os.Symlink("../drivers/"+module, s.bus(address, "driver")))
	}
}

// Each bridge of a machine is listed, with what is known of it and what to do next.
func TestBridges(t *testing.T) {
	none, err := made(t).bridges()
	require.NoError(t, err)
	require.Empty(t, none)

	const a = "0000:b1:00.0"
	for name, c := range map[string]struct {
		vendor, device, class, driver, module string
		link, iommu, loaded                   string
		node                                  bool
		about, err                            string
	}{
		"not a bridge":              {vendor: "0x8086", device: "0x7113", class: "0x068000"},
		"without a driver":          {vendor: "0x8086", device: "0x347e", class: "0x068000", about: "8086:347e, BAR0 64 KiB, BAR2 64 MiB, no IOMMU", err: "modprobe ntb_hw_intel"},
		"that a driver refuses":     {vendor: "0x1022", device: "0x148b", loaded: "ntb_hw_amd", about: "1022:148b, BAR0", err: "ntb_hw_amd is loaded, and does not drive bridge"},
		"Switchtec's management":    {vendor: "0x11f8", device: "0x4100", class: "0x058000"},
		"Switchtec's bridge":        {vendor: "0x11f8", device: "0x4100", class: "0x068000", driver: "switchtec", about: "11f8:4100, driver switchtec, BAR0", err: "modprobe ntb_hw_switchtec"},
		"of ntb_transport":          {vendor: "0x8086", device: "0x347e", driver: "ntb_hw_intel", module: "ntb_transport", about: "driver ntb_hw_intel, module ntb_transport", err: "rmmod it, and modprobe ntb_cdev"},
		"of a kind that is unknown": {vendor: "0x1234", device: "0x5678", driver: "x", module: "ntb_transport", about: "1234:5678, driver x", err: "rmmod it"},
		"ready":                     {vendor: "0x8086", device: "0x347e", driver: "ntb_hw_intel", module: "ntb_cdev", node: true, link: "ready", iommu: "DMA-FQ", about: "8086:347e, driver ntb_hw_intel, module ntb_cdev, link ready, BAR0 64 KiB, BAR2 64 MiB, IOMMU domain DMA-FQ"},
		"whose link is down":        {vendor: "0x8086", device: "0x347e", module: "ntb_cdev", node: true, link: "down", iommu: "identity", about: "link down, BAR0 64 KiB, BAR2 64 MiB, IOMMU domain identity, which confines nothing", err: "the link is down"},
		"without a window":          {vendor: "0x8086", device: "0x347e", module: "ntb_cdev", node: true, link: "no window", about: "link no window", err: "no memory of this host fits a window"},
		"whose peer has no window":  {vendor: "0x8086", device: "0x347e", module: "ntb_cdev", node: true, link: "peer has no window", about: "link peer has no window", err: "the other host has no window"},
		"whose sides disagree":      {vendor: "0x8086", device: "0x347e", module: "ntb_cdev", node: true, link: "up", about: "link up", err: "dmesg says why"},
		"without a node":            {vendor: "0x8086", device: "0x347e", module: "ntb_cdev", about: "module ntb_cdev", err: "a container needs the node"},
	} {
		t.Run(name, func(t *testing.T) {
			s := made(t)
			s.function(t, a, c.vendor, c.device, c.class, c.driver, c.module)
			for path, text := range map[string]string{s.class(a, "link"): c.link, s.pci(a, "iommu_group/type"): c.iommu} {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
			}
			if c.loaded != "" {
				require.NoError(t, os.MkdirAll(filepath.Join(s.sys, "module", c.loaded), 0o700))
			}
			if c.node {
				require.NoError(t, os.MkdirAll(filepath.Dir(s.node(a)), 0o700))
				require.NoError(t, os.WriteFile(s.node(a), nil, 0o600))
			}
			all, err := s.bridges()
			require.NoError(t, err)
			if c.about == "" {
				require.Empty(t, all)
				return
			}
			require.Len(t, all, 1)
			require.Equal(t, a, all[0].Address)
			require.Contains(t, all[0].About, c.about)
			if c.err == "" {
				require.NoError(t, all[0].Err)
			} else {
				require.ErrorContains(t, all[0].Err, c.err)
				_, err = s.find()
				require.Equal(t, c.node, err == nil, "%v", err)
			}
		})
	}
}
