package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// lookupTimeout is how long looking up the names of all targets may take.
const lookupTimeout = 5 * time.Second

// served is a map, and the forwarder that serves it or will do so.
type served struct {
	f     *Forwarder
	m     *Map
	fresh bool // f has served no map yet
}

// checkLoops returns an error if one of these maps leads back to itself: by its own target, or
// through other maps of these. The error is one line that names the maps.
//
// Other listeners are not known, and neither are targets to which a name leads later on.
// Map.MaxConnections ends such loops.
func (e env) checkLoops(ctx context.Context, maps []served) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	all := e.routes(ctx, maps)
	local := localAddresses()
	leads := func(from, to int) bool { return all[from].leadsTo(all[to], local) }
	for i := range all {
		if loop := shortestLoop(i, len(all), leads); loop != nil {
			return loopError(all, loop)
		}
	}
	return nil
}

// route is the way from a listener of a map to one of its targets.
type route struct {
	text   string   // the map as given, for messages
	listen Endpoint // with the port that was picked
	// file is that of a listener at a path, else nil.
	file   os.FileInfo
	target Endpoint // of sdp, as the fabric calls it
	// reaches has what a dial of the target may try, of tcp.
	reaches []netip.AddrPort
}

// routes returns the routes of maps. Their targets are looked up all at once, as dials would. What
// cannot be looked up before ctx ends leads nowhere.
func (e env) routes(ctx context.Context, maps []served) []route {
	var all []route
	for _, s := range maps {
		for _, t := range s.m.Targets {
			for i, ln := range s.f.door.lns {
				listen := s.f.addr
				if listen.Network == networkBoth {
					listen = Endpoint{listen.networks()[i], ln.Addr().String()}
				}
				all = append(all, route{text: s.m.Listen.String() + "=" + t.String(), listen: listen, file: unixsock.File(ln), target: t})
			}
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		switch r := &all[i]; r.target.Network {
		case networkTCP:
			wg.Go(func() { r.reaches = resolveTCP(ctx, r.target.Address) })
		case networkSDP:
			wg.Go(func() {
				if a, err := e.fabric.ResolveAddr(ctx, r.target.Address); err == nil {
					r.target.Address = a.String()
				}
			})
		}
	}
	wg.Wait()
	return all
}

// leadsTo reports whether the target of r is the listener of another route.
func (r route) leadsTo(to route, local func(netip.Addr) bool) bool {
	switch {
	case r.target.Network != to.listen.Network:
		return false
	case r.target.Network == networkTCP:
		for _, a := range r.reaches {
			if answers(to.listen.Address, a, local) {
				return true
			}
		}
		return false
	case to.file != nil && !unixsock.IsAbstract(r.target.Address):
		// The path is looked up now, as connect does.
		info, err := os.Stat(r.target.Address)
		return err == nil && os.SameFile(info, to.file)
	}
	return r.target.Address == to.listen.Address
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
	through := ""
	if len(loop) > 1 {
		var others []string
		for _, at := range loop[1:] {
			others = append(others, all[at].text)
		}
		through = " through " + strings.Join(others, " and ")
	}
	return fmt.Errorf("map %s leads back to itself%s, so that each connection would make more of them without end; choose another target",
		all[loop[0]].text, through)
}
