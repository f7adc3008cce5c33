package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

const (
	// lookupTimeout is how long looking up the names of all targets may take.
	lookupTimeout = 5 * time.Second
	// postTimeout is how long another process may use the board of the fabric.
	postTimeout = 30 * time.Second
)

// errNoFabric reports that the board of the fabric could not be opened, so that the
// maps of other processes are not known.
var errNoFabric = errors.New("the maps of other processes are not known")

// registration holds the maps of this process that other processes see.
type registration struct {
	board *hostdir.Board // nil where the system has none
}

// Close withdraws the maps. From then on the listeners may lead to other targets.
func (r *registration) Close() {
	if r.board != nil {
		r.board.Close() // fails only for lack of kernel memory, and the lock ends with this process
	}
}

// served is a map, and the forwarder that serves it or will do so.
type served struct {
	f *Forwarder
	m *Map
}

// register checks that none of these maps leads back to itself: by its own
// target, by other maps of these, or by registered maps of other processes of the fabric
// on this machine. The error is one line that names the maps. If two processes form a
// loop together, the one that registers later is refused. Until Close, other processes
// know of these maps.
//
// Listeners that belong to no Forwarder are not known. Neither are targets to which a
// name leads later on. Map.MaxConnections ends such loops.
//
// spec names the fabric, as for sdp.Open. If its board cannot be opened, register checks
// the maps of this process, and returns an error that wraps errNoFabric.
func register(ctx context.Context, spec string, all []served) (*registration, error) {
	own := routes(ctx, all)
	board, boardErr := openBoard(spec)
	r := &registration{board}
	known := own
	if board != nil {
		others, err := post(ctx, board, own)
		if err != nil {
			r.Close()
			return nil, err
		}
		known = append(own[:len(own):len(own)], others...)
	}
	if err := checkLoops(ctx, known, len(own)); err != nil {
		r.Close()
		return nil, err
	}
	return r, boardErr
}

// openBoard opens the board of the fabric. Where the system has no SDP, and so no
// fabrics, it returns nil without an error.
func openBoard(own string) (*hostdir.Board, error) {
	var board *hostdir.Board
	var s *spec.Spec
	var err error
	if own == "" {
		own, _, err = spec.Default()
	}
	if err == nil {
		s, err = spec.Parse(own)
	}
	if err == nil {
		board, err = spec.OpenBoard(s)
	}
	if errors.Is(err, ntb.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoFabric, err)
	}
	return board, nil
}

// post publishes routes, and returns the routes of other processes.
func post(ctx context.Context, board *hostdir.Board, routes []route) (others []route, err error) {
	text, err := json.Marshal(routes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	texts, err := board.Post(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("cannot tell other processes of the maps: %w", err)
	}
	for _, text := range texts {
		var more []route
		if err := json.Unmarshal(text, &more); err != nil {
			return nil, fmt.Errorf("cannot read what another process says of its maps, end it or use another fabric: %w", err)
		}
		others = append(others, more...)
	}
	return others, nil
}

// route is a map in a form that other processes understand. It is posted as JSON.
type route struct {
	Map    string // the map as given, for messages
	PID    int
	Listen site
	Target site
}

// site is one side of a route.
type site struct {
	Network string
	// Address is host:port, or a path. A path is absolute unless it is an abstract
	// name. The address of a listener has the port that was picked. Names of the
	// fabric's hosts are the same in all its processes. Those of TCP targets are as
	// given.
	Address string
	// Space is where the address has this meaning. For tcp and abstract names it is a
	// network namespace, if the system has such. For the path of a listener it is the
	// socket's file.
	Space string
}

// routes returns the routes of maps, one for each target.
func routes(ctx context.Context, maps []served) []route {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var all []route
	for _, s := range maps {
		for _, t := range s.m.Targets {
			for i := range s.f.lns {
				all = append(all, s.route(ctx, i, t))
			}
		}
	}
	return all
}

// route is the way from a listener to a target.
func (s served) route(ctx context.Context, listener int, to Endpoint) route {
	ln := s.f.lns[listener]
	from := s.f.addr
	if from.Network == networkBoth {
		from = Endpoint{from.networks()[listener], ln.Addr().String()}
	}
	r := route{
		Map:    s.m.Listen.String() + "=" + to.String(),
		PID:    os.Getpid(),
		Listen: newSite(from),
		Target: newSite(to),
	}
	if file := unixsock.File(ln); file != nil {
		r.Listen.Space = fileID(file)
	}
	if to.Network == networkSDP {
		// An unknown host leads nowhere at present.
		if a, err := s.f.env.fabric.ResolveAddr(ctx, to.Address); err == nil {
			r.Target.Address = a.String()
		}
	}
	return r
}

func newSite(e Endpoint) site {
	s := site{Network: e.Network, Address: e.Address}
	switch {
	case e.Network == networkTCP, e.Network == networkUnix && unixsock.IsAbstract(e.Address):
		s.Space = networkNamespace()
	case e.Network == networkUnix:
		if abs, err := filepath.Abs(e.Address); err == nil {
			s.Address = abs
		}
	}
	return s
}

// checkLoops returns an error if one of the first own routes leads back to itself.
func checkLoops(ctx context.Context, all []route, own int) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	leads := reaches(ctx, all)
	for i := range own {
		if loop := shortestLoop(i, len(all), leads); loop != nil {
			return loopError(all, loop)
		}
	}
	return nil
}

// shortestLoop finds the shortest way from start back to it. start is its first element.
// If there is none, it returns nil.
func shortestLoop(start, n int, leads func(from, to int) bool) []int {
	before := make(map[int]int, n) // predecessor of each node that was reached
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if leads(at, start) {
			loop := []int{at}
			for at != start {
				at = before[at]
				loop = append([]int{at}, loop...)
			}
			return loop
		}
		for next := range n {
			if _, seen := before[next]; !seen && next != start && leads(at, next) {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func loopError(all []route, loop []int) error {
	var through strings.Builder
	for i, at := range loop[1:] {
		if i == 0 {
			through.WriteString(" through ")
		} else {
			through.WriteString(" and ")
		}
		through.WriteString(all[at].Map)
		if pid := all[at].PID; pid != all[loop[0]].PID {
			fmt.Fprintf(&through, " of process %d", pid)
		}
	}
	return fmt.Errorf("map %s leads back to itself%s, so that each connection would make more of them without end; choose another target",
		all[loop[0]].Map, through.String())
}

// reaches returns a function that reports whether the listener of one route is the
// target of another.
func reaches(ctx context.Context, all []route) func(from, to int) bool {
	addresses := resolveAll(ctx, all)
	local := localAddresses()
	return func(from, to int) bool {
		target, listener := all[from].Target, all[to].Listen
		switch {
		case target.Network != listener.Network:
			return false
		case target.Network == networkTCP:
			if target.Space != listener.Space {
				return false
			}
			for _, a := range addresses[from] {
				if answers(listener.Address, a, local) {
					return true
				}
			}
			return false
		case target.Network == networkUnix && !unixsock.IsAbstract(target.Address):
			// The path is looked up now, as connect does.
			info, err := os.Stat(target.Address)
			return err == nil && fileID(info) != "" && fileID(info) == listener.Space
		}
		return target.Address == listener.Address && target.Space == listener.Space
	}
}
