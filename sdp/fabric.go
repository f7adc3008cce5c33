package sdp

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/spec"
)

// Stats counts what a connection did. See package bounce for the fields.
type Stats = bounce.Stats

// FabricStats counts what this process did on a Fabric since it was opened.
type FabricStats struct {
	Stats // sum over all connections of this process on the fabric

	// Links is the number of links to other processes. A process that dials itself
	// has two.
	Links int
	// LinkDoorbells counts the doorbells that links to other processes rang, including
	// those of set-up. Lanes and tunnels have their own.
	LinkDoorbells uint64
	// Rescues is how often a lost doorbell was made up for. It is 0 where doorbells
	// are not lost.
	Rescues uint64
	// ProcessorTaken is how often the system took the processor from a wait of this process that spun or yielded, for
	// two milliseconds or more, because a quota was used up, or other processes ran.
	// For 20 ms after it, and up to ten seconds where it happens again and again, waits at a place where spins have
	// found nothing of late sleep at once. ReadSpinsSpared and WriteSpinsSpared count those.
	ProcessorTaken uint64

	// Refused is how often this process refused another one because it does not fit: it
	// speaks another version of the protocol, is of a fabric with another plan, or of a
	// user that is not allowed or has too many links or connections. Last is what differs. Where this process dialled, it is in the error of the dial.
	Refused Refusals

	Networks NetworkStats
}

// Refusals counts processes that were refused, and has the reason of the last refusal.
type Refusals struct {
	Count uint64
	Last  string // empty if there was none
}

// NetworkStats counts the connections of network "tcp" by the transport that they
// used, and by reason. Where TCP was used because SDP was not possible, or has failed, the
// reason is logged too, once for each.
type NetworkStats struct {
	DialSDP         uint64 // the server listens by SDP
	DialNotLocal    uint64 // TCP: the address is not this machine's, nor by option hostI a node's
	DialNoNode      uint64 // TCP: the node that has the address is not reached, or does not answer
	DialNoSDP       uint64 // TCP: the server that TCP reaches does not listen by SDP in the fabric
	DialSDPFailed   uint64 // SDP was tried and failed; TCP was tried if there was time, and no user was refused
	DialNoFabric    uint64 // TCP: this system has no fabrics, or lacks what it takes to join one
	DialNoLookup    uint64 // TCP: the kernel does not say which socket TCP would reach
	DialNeedsSocket uint64 // TCP: Dialer.TCP has LocalAddr, Control or ControlContext
	AcceptSDP       uint64
	AcceptTCP       uint64
	ListenTCPOnly   uint64 // as DialNoFabric, or the kernel does not identify the socket
}

type networkCounters struct {
	dialSDP, dialNotLocal, dialNoNode, dialNoSDP, dialSDPFailed atomic.Uint64
	dialNoFabric, dialNoLookup, dialNeedsSocket                 atomic.Uint64
	acceptSDP, acceptTCP, listenTCPOnly                         atomic.Uint64
}

func (c *networkCounters) stats() NetworkStats {
	return NetworkStats{
		DialSDP: c.dialSDP.Load(), DialNotLocal: c.dialNotLocal.Load(), DialNoNode: c.dialNoNode.Load(), DialNoSDP: c.dialNoSDP.Load(),
		DialSDPFailed: c.dialSDPFailed.Load(), DialNoFabric: c.dialNoFabric.Load(),
		DialNoLookup: c.dialNoLookup.Load(), DialNeedsSocket: c.dialNeedsSocket.Load(),
		AcceptSDP: c.acceptSDP.Load(), AcceptTCP: c.acceptTCP.Load(), ListenTCPOnly: c.listenTCPOnly.Load(),
	}
}

// Fabric is a fabric that this process has joined. If its directory is removed or replaced, its
// listeners end, and further calls fail with syscall.ESTALE: it is to be closed, and opened again.
type Fabric struct {
	stack    *stack // immutable
	counters *networkCounters
	lazy     bool // this is the default Fabric

	mu     lock.Mutex[lock.Users]
	users  map[user]struct{} // open listeners and connections; guarded by mu
	calls  int               // calls under way, of the default Fabric; guarded by mu
	timer  *time.Timer       // closes the default Fabric; guarded by mu
	closed bool              // guarded by mu
}

// user is implemented by the endpoint of a *Conn, and by a *Listener.
type user interface{ Close() error }

// Open joins a fabric: "" for the one that SDP_FABRIC names, or if that is not set the file
// /etc/ntbnet/fabric, or else the one that this user's processes on this machine share; "shm:NAME" for another one on
// this machine; "mem:NAME" for one within this process, for tests. The caller
// closes the Fabric.
//
// "shm:/PATH" is the fabric of those who may enter a directory: of this user, if it has mode
// 0700; or of the members of its group, if it has mode 3770 and its owner is root, this user
// or one whom option owner names. The owner is trusted. Rings, lines and meshes may have the
// path of a directory in place of a name too. What else a directory is, it is refused with
// the commands that make it right.
//
// "ring:NAME?node=I&nodes=N" makes this process node I of a ring of N hosts, each
// with a link to the two next to it: see the package comment. "line:" leaves out
// the link from the last to the first, "mesh:" has one between any two. Open does
// not wait for the other nodes. The process owns the links of node I: if another one
// does, Open fails with EADDRINUSE, and it says so if a node that runs has another N.
//
// "ring:NAME?node=I" makes it a member of node I: it shares the node's ports, and
// reaches other nodes through the process that owns the links. Open does not wait for
// that one; a dial of another node does, until its deadline. If the owner ends,
// connections through it end with ECONNRESET, unless another process takes the links
// over within a second.
//
// "ntb" joins two hosts with one bridge between them, of any kind that Linux drives and the kernel module ntb_cdev
// has: see docs/hardware.md. It is a line of two, and needs no options. The kernel says which node this host is, and
// Open waits for that, for 10 s at the most; with node=I it does not. The first process of a host owns the links.
// Processes that start later are its members. When the owner ends, one of them owns the links. Where a host has
// several bridges, "ntb:ADDRESS" names one.
// The error wraps ENODEV if there is no bridge, or its module is not loaded.
//
// Options may follow the name, as in "shm:NAME?spin=0&buffer=65536". docs/fabrics.md has a table of them, with their
// ranges and what counts without them:
//
//	window buffer spin dmafrom             of all fabrics
//	group owner                            of fabrics that are a directory
//	node hostI fallback backend            of ring:, line: and mesh:
//	nodes share lanes slots frame          of the owner of a node's links there
//	failover silence heap puts left right nodeI
//
// An ntb fabric takes node, hostI, fallback, lanes, slots, frame, failover, silence, heap and puts of the last three lines. Where
// processors are scarce, waits spin less than spin says: see FabricStats.ProcessorTaken.
//
// In a bubble of testing/synctest only fabrics in memory work, with spin=0; others are
// errors.ErrUnsupported.
//
// A string that is none of these is EINVAL. Errors wrap EPERM or EACCES if the fabric
// is another user's, or a group's of which this user is not, or this process is the overflow uid (nobody) of a user namespace,
// as which every user without a number there appears.
func Open(fabric string) (*Fabric, error) {
	s, err := openStack(fabric, nil)
	if err != nil {
		return nil, opError("open", nil, nil, err)
	}
	return newFabric(s, &networkCounters{}), nil
}

// OpenWith is Open, with devices that the program supplies. Fabrics that are opened by the same
// name while this one is open share its fabric, and its devices with it. So the functions Dial
// and Listen use them where the name is "" or that of their fabric. This process owns the links
// of its node, also with share=1: if another one does, the error is EADDRINUSE. If there is one before, OpenWith
// fails with EBUSY. That includes the Fabric that Dial and Listen open by themselves, which stays
// for 250 ms after its last use: call OpenWith first.
func OpenWith(fabric string, devices Devices) (*Fabric, error) {
	s, err := openStack(fabric, &devices)
	if err != nil {
		return nil, opError("open", nil, nil, err)
	}
	return newFabric(s, &networkCounters{}), nil
}

func newFabric(s *stack, c *networkCounters) *Fabric {
	f := &Fabric{stack: s, counters: c, users: map[user]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fabrics[f] = struct{}{}
	return f
}

// Close closes the Fabric's listeners and connections and leaves the fabric. What was
// written reaches the other side.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return net.ErrClosed
	}
	f.closed = true
	users := f.users
	f.users = map[user]struct{}{}
	f.mu.Unlock()
	// They are closed all at once, since several may have to wait until the other side
	// has what was written.
	var all sync.WaitGroup
	for u := range users {
		all.Go(func() { u.Close() })
	}
	all.Wait()
	f.stack.mu.Lock()
	delete(f.stack.fabrics, f)
	f.stack.mu.Unlock()
	f.stack.release()
	return nil
}

// OwnsLinks reports whether this process owns the links of its node to other nodes.
// Then the other processes of the node use them too. Its fabric has several hosts,
// and was named with nodes=N. With share=1 no other process of the node owned them at that moment.
func (f *Fabric) OwnsLinks() bool { return f.stack.fabric.OwnsLinks() }

// Stats returns the Fabric's counters.
func (f *Fabric) Stats() FabricStats {
	s := f.stack.stats()
	s.Networks = f.counters.stats()
	return s
}

// Crossover is the cost of payload by CPU stores and by the DMA engine, by size, as
// measured when a link came up.
type Crossover struct {
	Peer      string // the node at the other end
	Threshold int    // size in bytes from which on the engine is used; 0 for never
	Points    []bounce.CrossoverPoint
}

// Crossovers returns the measurements of the links that are up and have an engine.
func (f *Fabric) Crossovers() []Crossover { return f.stack.crossovers() }

// Dial is Dialer.Dial on this Fabric.
func (f *Fabric) Dial(network, address string) (net.Conn, error) {
	return (&Dialer{Fabric: f}).Dial(network, address)
}

// DialContext is Dialer.DialContext on this Fabric.
func (f *Fabric) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return (&Dialer{Fabric: f}).DialContext(ctx, network, address)
}

// Listen is ListenConfig.Listen on this Fabric.
func (f *Fabric) Listen(network, address string) (net.Listener, error) {
	return (&ListenConfig{Fabric: f}).Listen(context.Background(), network, address)
}

// use returns the Fabric for one call, or the default one if f is nil. That is opened if
// necessary, unless ctx ends before. The caller then calls done.
func (f *Fabric) use(ctx context.Context) (_ *Fabric, done func(), err error) {
	if f == nil {
		return useDefault(ctx)
	}
	if err := f.stack.usable(); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return nil, nil, net.ErrClosed
	}
	if err := f.stack.fabric.Lost(); err != nil {
		return nil, nil, err
	}
	return f, func() {}, nil
}

// add adds a listener or connection, which is closed with the Fabric.
func (f *Fabric) add(u user) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return net.ErrClosed
	}
	f.users[u] = struct{}{}
	return nil
}

// remove removes one that is closed.
func (f *Fabric) remove(u user) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, u)
	f.lingerIfIdle()
}

// linger is how long the default Fabric stays open without listeners and connections.
// So programs that dial one connection after the other do not join the fabric each
// time.
const linger = 250 * time.Millisecond

// lingerIfIdle schedules the end of the default Fabric if it is idle. The caller
// holds f.mu.
func (f *Fabric) lingerIfIdle() {
	if !f.lazy || f.closed || f.calls > 0 || len(f.users) > 0 {
		return
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(linger, f.closeIfIdle)
	} else {
		f.timer.Reset(linger)
	}
}

// closeIfIdle closes the default Fabric unless it has come into use again.
func (f *Fabric) closeIfIdle() {
	defaultFabric.mu.Lock()
	f.mu.Lock()
	idle := !f.closed && f.calls == 0 && len(f.users) == 0
	f.mu.Unlock()
	if idle && defaultFabric.fabric == f { // and no caller can begin to use it while we hold defaultFabric.mu
		defaultFabric.fabric = nil
	}
	defaultFabric.mu.Unlock()
	if idle {
		f.Close() // Close may have to wait for a lease
	}
}

// defaultFabric is the Fabric of the package's functions.
var defaultFabric struct {
	mu       lock.Mutex[lock.DefaultFabric]
	fabric   *Fabric   // guarded by mu
	opening  *opening  // nil unless it is being opened; guarded by mu
	lack     knownLack // guarded by mu
	counters networkCounters
}

// opening is a call of openDefault.
type opening struct {
	done chan struct{} // closed at its end
	err  error         // constant once done is closed
}

// useDefault returns the default Fabric for one call. If it is not open, useDefault waits until it
// is, or until ctx ends. The caller then calls done.
func useDefault(ctx context.Context) (f *Fabric, done func(), err error) {
	for {
		f, o, err := takeDefault()
		if err != nil {
			return nil, nil, err
		}
		if f != nil && f.stack.fabric.Lost() == nil {
			return f, f.endCall, nil
		}
		if f != nil { // others have it until their connections end
			f.dropDefault()
			continue
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if o.err != nil {
			return nil, nil, o.err
		}
	}
}

// takeDefault begins a call of the default Fabric if that is open. Otherwise it returns what opens
// it.
func takeDefault() (*Fabric, *opening, error) {
	defaultFabric.mu.Lock()
	defer defaultFabric.mu.Unlock()
	f := defaultFabric.fabric
	if f == nil {
		if defaultFabric.opening == nil {
			defaultFabric.opening = &opening{done: make(chan struct{})}
			go openDefault(defaultFabric.opening)
		}
		return nil, defaultFabric.opening, nil
	}
	if err := f.stack.usable(); err != nil {
		return nil, nil, err
	}
	f.beginCall()
	return f, nil, nil
}

// dropDefault ends a call of the default Fabric, which others no longer find, and makes the next one
// open another. This one is closed when it is idle.
func (f *Fabric) dropDefault() {
	defaultFabric.mu.Lock()
	defer defaultFabric.mu.Unlock()
	if defaultFabric.fabric == f {
		defaultFabric.fabric = nil
	}
	f.endCall()
}

// openDefault opens the default Fabric. Without a call it stays as long as after the last one.
func openDefault(o *opening) {
	name, _, err := spec.Default()
	var s *stack
	if err == nil {
		s, err = openSpared(name)
	}
	defaultFabric.mu.Lock()
	defer defaultFabric.mu.Unlock()
	defaultFabric.lack = knownLack{}
	if tcpAlone(nil, err) {
		defaultFabric.lack = knownLack{name, err, time.Now()}
	}
	if err == nil {
		f := newFabric(s, &defaultFabric.counters)
		f.lazy = true
		f.beginCall()
		defer f.endCall()
		defaultFabric.fabric = f
	}
	o.err = err
	defaultFabric.opening = nil
	close(o.done)
}

// openSpared is openStack that leaves descriptors for TCP.
func openSpared(name string) (*stack, error) {
	unspare, err := spare()
	if err != nil {
		return nil, err
	}
	defer unspare()
	return openStack(name, nil)
}

func (f *Fabric) beginCall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
}

func (f *Fabric) endCall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls--
	f.lingerIfIdle()
}

// DefaultStats returns the counters of the default Fabric: those of the fabric if it
// is open now, and those by network since the process began.
func DefaultStats() FabricStats {
	defaultFabric.mu.Lock()
	f := defaultFabric.fabric
	defaultFabric.mu.Unlock()
	if f == nil {
		return FabricStats{Networks: defaultFabric.counters.stats()}
	}
	return f.Stats()
}
