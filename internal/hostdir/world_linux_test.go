package hostdir

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
)

// fault is a mistake that a call of the simulated kernel makes in a world of tests.
type fault string

// The planted faults. Each is found by seeds and by the exploration of small cases, or these
// would find nothing else either.
const (
	noFault       fault = ""
	takesTaken    fault = "a byte is locked that another process has locked"
	keepsDead     fault = "the claims of a process that ended stay"
	holderFirst   fault = "the holder of a port is published before the port is claimed"
	dropsSingly   fault = "a port is released before its holder"
	keepsReleased fault = "a port that is released stays claimed"
	neighbours    fault = "the byte of a port's holder is next to that of the port"
	skipsLowest   fault = "the lowest number that is free is left out"
	stopsAtFirst  fault = "a search ends at the first claim"
	blind         fault = "a process does not find its own claims"
)

var faults = []fault{
	takesTaken, keepsDead, holderFirst, dropsSingly, keepsReleased, neighbours, skipsLowest,
	stopsAtFirst, blind,
}

// call is a call of a member.
type call struct {
	what   string
	port   int
	cookie uint64
}

// host is a claim file and the processes that claim there. Each is stopped before each call
// of its locks, and goes on when it is chosen. All that happens is fixed by what choose
// returns.
type host struct {
	fault   fault
	choose  func(n int) int
	open    func() claimFD // opens a real file beside the simulated one; nil for none
	crashes int            // how many processes may still crash
	members []*member      // alive
	joined  int
	locks   map[int64]*member // by byte
	now     int               // counts what happened
	// When a byte was locked last, and free last. One that is not here has been free for
	// ever.
	locked, free map[int64]int
	trace        explore.Trace
	wrong        string // the first thing that may not happen
}

// member is a process. Its claims call its methods lock, unlock and find.
type member struct {
	*Claims
	host   *host
	id     int
	script []call // what it calls next
	file   claimFD

	next   func() (struct{}, bool) // has it go on to its next call of locks
	stop   func()
	pause  func(struct{}) bool
	paused bool               // before a call of locks
	begun  int                // when the present call began
	owns   map[int64]struct{} // what it has claimed, as its calls returned
}

// crash is what a member panics with where its process ends.
type crash struct{}

func newHost(fl fault, choose func(n int) int) *host {
	return &host{fault: fl, choose: choose, locks: map[int64]*member{}, locked: map[int64]int{}, free: map[int64]int{}}
}

func (h *host) fail(format string, args ...any) {
	if h.wrong == "" {
		h.wrong = fmt.Sprintf(format, args...)
	}
}

// join adds a process with a script.
func (h *host) join(script []call) {
	h.joined++
	m := &member{host: h, id: h.joined, script: script, owns: map[int64]struct{}{}}
	m.Claims = newClaims(m)
	if h.open != nil {
		m.file = h.open()
	}
	m.next, m.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (crash{}) {
				panic(r)
			}
		}()
		m.pause = yield
		for len(m.script) > 0 {
			c := m.script[0]
			m.script = m.script[1:]
			h.now++
			m.begun = h.now
			m.do(c)
		}
	})
	h.members = append(h.members, m)
	m.next()
}

// run has the members go on, one at a time, until all have done their scripts. Any of them
// may crash instead, and then joins again with what is left of its script.
func (h *host) run(scripts [][]call) {
	for _, s := range scripts {
		h.join(s)
	}
	for h.wrong == "" {
		var ready []*member
		for _, m := range h.members {
			if m.paused {
				ready = append(ready, m)
			}
		}
		if len(ready) == 0 {
			break
		}
		options := len(ready)
		if h.crashes > 0 {
			options += len(h.members)
		}
		i := h.choose(options)
		h.now++
		if i < len(ready) {
			ready[i].paused = false
			ready[i].next()
			continue
		}
		h.crashes--
		h.crash(h.members[i-len(ready)])
	}
	want := map[int64]*member{}
	for _, m := range h.members {
		for at := range m.owns {
			want[at] = m
		}
	}
	if !maps.Equal(want, h.locks) && h.wrong == "" {
		h.fail("in the end %s is claimed, want %s", show(h.locks), show(want))
	}
	for _, m := range h.members {
		h.leave(m)
	}
}

// show returns bytes and who has them.
func show(locks map[int64]*member) string {
	var s []string
	for _, at := range slices.Sorted(maps.Keys(locks)) {
		s = append(s, fmt.Sprintf("%d by %d", at, locks[at].id))
	}
	return fmt.Sprint(s)
}

// leave ends a process. The kernel drops its locks.
func (h *host) leave(m *member) {
	m.stop()
	if h.open != nil {
		m.file.close()
	}
	for at, o := range h.locks {
		if o == m && h.fault != keepsDead {
			h.set(at, nil)
		}
	}
	h.members = slices.DeleteFunc(slices.Clone(h.members), func(o *member) bool { return o == m })
}

func (h *host) crash(m *member) {
	h.trace.Note("crash", m.id)
	h.leave(m)
	h.check()
	if len(m.script) > 0 && m.script[0].what != "number" {
		m.script = slices.Insert(slices.Clone(m.script), 0, call{what: "number"})
	}
	h.join(m.script)
}

// set notes that m has locked a byte, or with nil that it is free.
func (h *host) set(at int64, m *member) {
	if h.locks[at] == nil {
		h.free[at] = h.now
	} else {
		h.locked[at] = h.now
	}
	if m == nil {
		delete(h.locks, at)
	} else {
		h.locks[at] = m
	}
}

// wasLocked reports whether a byte was locked at some time of the member's call.
func (m *member) wasLocked(at int64) bool {
	t, ok := m.host.locked[at]
	return m.host.locks[at] != nil || ok && t >= m.begun
}

// wasFree reports whether a byte was free at some time of the member's call.
func (m *member) wasFree(at int64) bool {
	t, ok := m.host.free[at]
	return m.host.locks[at] == nil || ok && t >= m.begun
}

// check checks what holds at any time: each port has one holder, which has claimed both it
// and its own number.
func (h *host) check() {
	holders := map[int64]int64{}
	for _, at := range slices.Sorted(maps.Keys(h.locks)) {
		port, rest := at>>portShift, at&(1<<portShift-1)
		if at >= 1<<62 || port == 0 || rest == 0 {
			continue
		}
		number, o := rest-1, h.locks[at]
		if other, ok := holders[port]; ok {
			h.fail("processes %d and %d hold port %d", other, number, port)
		}
		holders[port] = number
		if h.locks[number] != o || h.locks[portByte(int(port))] != o {
			h.fail("process %d is published as the holder of port %d without a claim", number, port)
		}
	}
}

// The methods of byteLocks are calls of the kernel. The member is stopped before each.

func (m *member) kernel(what string, args ...any) {
	m.paused = true
	if !m.pause(struct{}{}) {
		panic(crash{})
	}
	m.host.trace.Note(what, m.id, args)
}

func (m *member) lock(at int64) (bool, error) {
	h := m.host
	port := int(at >> portShift)
	if h.fault == holderFirst && at < 1<<62 && at == portByte(port) && port > 0 && m.process > 0 {
		m.kernel("lock", at+1)
		h.set(holderByte(port, m.process), m)
		h.check()
	}
	if h.fault == neighbours && at == holderByte(port, m.process) && at < 1<<62 {
		at = portByte(port) + 1
	}
	m.kernel("lock", at)
	if h.fault == skipsLowest && at <= maxProcess && h.locks[at] == nil && h.locks[at+1] == nil && at == 1 {
		return false, nil
	}
	o := h.locks[at]
	ok := o == nil || o == m || h.fault == takesTaken
	if ok && o != m {
		h.set(at, m)
	}
	if h.open != nil {
		if real, err := m.file.lock(at); err != nil || real != ok {
			h.fail("the kernel locks byte %d for %d: %v, %v; want %v", at, m.id, real, err, ok)
		}
	}
	h.check()
	return ok, nil
}

func (m *member) unlock(start, n int64) error {
	h := m.host
	m.kernel("unlock", start, n)
	if n == 0 {
		n = math.MaxInt64 - start
	}
	if h.open != nil {
		if err := m.file.unlock(start, n); err != nil {
			h.fail("the kernel unlocks %d bytes at %d: %v", n, start, err)
		}
	}
	if h.fault == keepsReleased {
		return nil
	}
	for _, at := range slices.Sorted(maps.Keys(h.locks)) {
		if at < start || at-start >= n || h.locks[at] != m {
			continue
		}
		h.set(at, nil)
		if h.fault == dropsSingly {
			h.check()
			m.kernel("unlock", at)
		}
	}
	h.check()
	return nil
}

func (m *member) find(start, n int64) (int64, bool, error) {
	h := m.host
	m.kernel("find", start, n)
	var found []int64
	for _, at := range slices.Sorted(maps.Keys(h.locks)) {
		if at >= start && at-start < n && (h.locks[at] != m || h.fault != blind) {
			found = append(found, at)
		}
	}
	if h.fault == stopsAtFirst && h.locks[start-1] != nil {
		found = nil
	}
	if h.open != nil {
		at, ok, err := m.file.find(start, n)
		if err != nil || ok != (len(found) > 0) || ok && !slices.Contains(found, at) {
			h.fail("the kernel finds %d of %d, %d: %v, %v; want one of %v", at, start, n, ok, err, found)
		}
		return at, ok, err
	}
	if len(found) == 0 {
		return 0, false, nil
	}
	at := found[0]
	if len(found) > 1 {
		at = found[h.choose(len(found))]
	}
	if o := h.locks[at]; h.locks[at-1] == o || h.locks[at+1] == o {
		return 0, false, fmt.Errorf("byte %d and its neighbour are locked by %d: %w", at, o.id, syscall.EPERM)
	}
	return at, true, nil
}

// do makes a call, and checks what it returns.
func (m *member) do(c call) {
	h, had := m.host, m.process
	if had == 0 && c.what != "number" && c.what != "owner" {
		return // a Dir refuses that
	}
	var result any
	var err error
	switch c.what {
	case "number":
		var n int
		n, err = m.claimProcess()
		result = n
		m.claimed(n, had)
	case "port":
		_, err = m.ClaimPort(c.port)
		result = m.gotPort(c.port, err)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = nil
		}
	case "any port":
		port := 0
		port, err = m.claimFreePort(c.port)
		result = port
		if err == nil {
			m.gotPort(port, nil)
		}
	case "release":
		delete(m.owns, portByte(c.port))
		delete(m.owns, holderByte(c.port, m.process))
		m.releasePort(c.port)
	case "owner":
		var n int
		n, err = m.claimOwner()
		result = m.gotPort(ownerPort, err)
		if err == nil {
			m.claimed(n, had)
		} else if errors.Is(err, syscall.EADDRINUSE) {
			err = nil
		}
	case "holder":
		n, ok := 0, false
		n, ok, err = m.holderOf(c.port)
		result = n
		m.found(fmt.Sprint("port ", c.port), ok, holderByte(c.port, n), func(at int64) bool {
			return at >= holderByte(c.port, 1) && at <= holderByte(c.port, maxProcess)
		})
	case "numbers":
		var found []int
		found, err = m.Processes()
		result = found
		m.foundAll(found)
	case "publish":
		err = m.PublishSocket(c.port, c.cookie)
		m.owns[socketByte(c.port, c.cookie, m.process)] = struct{}{}
	case "withdraw":
		at := socketByte(c.port, c.cookie, m.process)
		if m.sockets[at] == 1 {
			delete(m.owns, at)
		}
		m.WithdrawSocket(c.port, c.cookie)
	case "socket":
		n, ok := 0, false
		n, ok, err = m.SocketHolder(c.port, c.cookie)
		result = n
		first := socketByte(c.port, c.cookie, 0)
		m.found(fmt.Sprint("socket ", c.port, c.cookie), ok, first+int64(n), func(at int64) bool {
			return at > first && at <= first+maxProcess
		})
	case "any socket":
		var s Socket
		ok := false
		s, ok, err = m.AnySocket(c.port)
		result = s
		first := socketByte(c.port, 0, 0)
		m.found(fmt.Sprint("sockets of port ", c.port), ok, socketByte(c.port, s.Cookie, s.Process), func(at int64) bool {
			return at >= first && at-first < 1<<46 // first+1<<46 may be 2^63
		})
	default:
		panic("no call " + c.what)
	}
	if err != nil {
		h.fail("%v of process %d: %v", c, m.id, err)
	}
	h.trace.Note("returned", m.id, c, result)
}

// claimed checks a process number: the one that the process had, or if it had none, 0, the
// lowest that is free.
func (m *member) claimed(n, had int) {
	if had != 0 && n != had {
		m.host.fail("process %d has number %d, and claims %d", m.id, had, n)
	}
	for at := int64(1); at < int64(n) && had == 0; at++ {
		if !m.wasLocked(at) {
			m.host.fail("process %d claims number %d, and %d is free", m.id, n, at)
		}
	}
	m.own(int64(n))
}

// own notes that a byte is claimed, which nobody else has.
func (m *member) own(at int64) {
	if m.host.locks[at] != m {
		m.host.fail("process %d has claimed byte %d, and has not locked it", m.id, at)
	}
	for _, o := range m.host.members {
		if _, ok := o.owns[at]; ok && o != m {
			m.host.fail("processes %d and %d have claimed byte %d", o.id, m.id, at)
		}
	}
	m.owns[at] = struct{}{}
}

// gotPort checks the claim of a port. It reports whether it was claimed.
func (m *member) gotPort(port int, err error) bool {
	if err != nil {
		if !m.wasLocked(portByte(port)) {
			m.host.fail("process %d: %v, and it is free", m.id, err)
		}
		return false
	}
	m.own(portByte(port))
	m.own(holderByte(port, m.process))
	return true
}

// found checks what a search has found: at, which was claimed, or nothing, where nothing was.
func (m *member) found(what string, ok bool, at int64, in func(at int64) bool) {
	if ok {
		if !m.wasLocked(at) || !in(at) {
			m.host.fail("process %d finds byte %d for %s, and it is free", m.id, at, what)
		}
		return
	}
	for _, at := range slices.Sorted(maps.Keys(m.host.locks)) {
		if in(at) && !m.wasFree(at) {
			m.host.fail("process %d finds nobody for %s, and byte %d is claimed", m.id, what, at)
		}
	}
}

// foundAll checks the numbers of all processes.
func (m *member) foundAll(found []int) {
	for _, n := range found {
		if !m.wasLocked(int64(n)) {
			m.host.fail("process %d finds process %d, which has ended", m.id, n)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(m.host.locks)) {
		if at <= maxProcess && !m.wasFree(at) && !slices.Contains(found, int(at)) {
			m.host.fail("process %d finds processes %v, and %d is one", m.id, found, at)
		}
	}
}
