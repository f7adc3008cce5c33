package ntbkernel

import (
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
)

// DefaultWindow is the most bytes of a window that are used if Options has none. Sessions clear their
// window and keep a copy of it at their end, and the windows of some bridges are far larger than what
// connections can fill.
const DefaultWindow = 64 << 20

// Options are those of an attachment.
type Options struct {
	// Window is the most bytes that are used of each window, a multiple of 4096. 0 stands for
	// DefaultWindow.
	Window int
	// Silence is how long the other side's heartbeat may stand still before its session ends, although the kernel
	// says nothing; 0 stands for ntbfixed.Silence. A process that ends is noticed at once.
	Silence time.Duration
}

func (o Options) window() (int, error) {
	if o.Window == 0 {
		return DefaultWindow, nil
	}
	if o.Window < 0 || o.Window%ntbfixed.PageSize != 0 {
		return 0, fmt.Errorf("ntbkernel: windows of %d bytes: want a multiple of %d: %w", o.Window, ntbfixed.PageSize, syscall.EINVAL)
	}
	return o.Window, nil
}

// Bridge is what this machine shows of a bridge.
type Bridge struct {
	Address string // of its PCI function
	About   string // its ids, driver, module, link, BARs and IOMMU, as far as they are known
	Err     error  // what keeps this process from using it, and which command helps; nil for nothing
}

// State is what the kernel says of a bridge.
type State struct {
	LinkUp bool   // the hardware's link is up
	Ready  bool   // and the other side's module agrees
	Gone   bool   // the bridge was removed
	Node   int    // 1 or 2, the other side being the other; 0 while that is not settled
	Peer   uint32 // first word that the other side has written; 0 for none

	// No window takes the memory of this host, or, there, that of the other one.
	NoWindow, PeerNoWindow bool

	combining  bool
	generation uint32
	doorbells  int

	ownOffset, ownSize, peerOffset, peerSize uint64
}

// The first word of a side that has the module: "NTC", and above 0 the version of what the two exchange.
const (
	moduleWord = 0x4e544300
	moduleABI  = 1

	transportWord = 4 // ntb_transport's version, in its first word
)

// window returns how many bytes of window a session can have in either direction, at most limit.
func (s *State) window(limit int) int {
	return max(0, int(min(s.ownSize, s.peerSize, uint64(ntbfixed.PageSize+limit)))-ntbfixed.PageSize)
}

// missing returns why the link is not ready, or nil if it is. The error wraps ENOTCONN, or ENODEV if the bridge
// was removed.
func (s *State) missing(address string) error {
	say := func(why string, errno syscall.Errno) error {
		return fmt.Errorf("ntbkernel: bridge %s: %s: %w", address, why, errno)
	}
	switch word := s.Peer; {
	case s.Gone:
		return say("it was removed, or its driver was unloaded", syscall.ENODEV)
	case s.Ready:
		return nil
	case !s.LinkUp:
		return say("the link is down: see that the other host is on and has loaded the driver of its bridge, and load ntb_cdev there (modprobe ntb_cdev)", syscall.ENOTCONN)
	case s.NoWindow:
		return say("no memory of this host fits a window of the bridge: dmesg says which cma= or IOMMU helps", syscall.ENOTCONN)
	case s.PeerNoWindow:
		return say("the other host has no window, since no memory of it fits one: dmesg says there which cma= or IOMMU helps", syscall.ENOTCONN)
	case word == 0 || word == ^uint32(0):
		return say("the link is up, and the other host has not loaded ntb_cdev: modprobe ntb_cdev there", syscall.ENOTCONN)
	case word == moduleWord|moduleABI:
		return say("the link is up, and the two hosts have not agreed yet: dmesg says why if that lasts", syscall.ENOTCONN)
	case word&^0xff == moduleWord:
		return say(fmt.Sprintf("the other host's ntb_cdev speaks version %d, this one's %d: load the same on both", word&0xff, moduleABI), syscall.ENOTCONN)
	case word == transportWord:
		return say("the other host runs ntb_transport: there, rmmod ntb_netdev ntb_transport, and modprobe ntb_cdev", syscall.ENOTCONN)
	default:
		return say(fmt.Sprintf("the other host has another module at its end, whose first word is %#x: remove that there, and modprobe ntb_cdev", word), syscall.ENOTCONN)
	}
}
