package census

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

const (
	askersAtOnce  = 64
	censusTimeout = 10 * time.Second
)

// found is a directory in which processes of a fabric meet.
type found struct {
	status.Directory
	place hostdir.Place
}

// OwnHosts returns the directories of all fabrics of this user that have a name.
func OwnHosts(ctx context.Context) ([]*status.Directory, error) {
	all, err := ownHosts()
	return readHosts(ctx, all, true), err
}

func ownHosts() (all []*found, err error) {
	for _, base := range hostdir.Bases() {
		names, err := hostdir.List(base)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if h := ownHost(base, name); h != nil {
				all = append(all, h)
			}
		}
	}
	return all, nil
}

// Foreign returns the directories of other users' fabrics that have a name, for root, as names, modes and locks
// say. It asks no process.
func Foreign() (all []*status.Directory) {
	for _, f := range hostdir.Foreign() {
		d := &status.Directory{Fabric: f.Name, Directory: f.Path, User: hostdir.UserName(f.UID), Processes: []*status.Process{}, Dead: f.Dead}
		if h := ownHost("", f.Name); h != nil {
			d.Fabric, d.Node = h.Fabric, h.Node
		}
		if d.Node == 0 && f.Name != "" {
			d.Fabric = "shm:" + d.Fabric
		}
		if f.Err != nil {
			d.Error = f.Err.Error()
		}
		for _, n := range f.Processes {
			d.Processes = append(d.Processes, &status.Process{
				Process: n, Node: max(d.Node, 1), UID: -1, GID: -1, Ports: portsOf(f.Holdings, n), Owner: n == f.Owner && d.Node != 0,
			})
		}
		all = append(all, d)
	}
	return all
}

// ownHost returns the view of a directory of this user's fabrics, or nil if it has not the name of
// one.
func ownHost(base, name string) *found {
	fabric, digits, several := strings.Cut(name, "@")
	node, _ := strconv.Atoi(digits)
	if spec.CheckName(fabric) != nil || several && (node < 1 || spec.DirectoryOf(fabric, node) != name) {
		return nil
	}
	return &found{status.Directory{Fabric: fabric, Node: node}, hostdir.In(base, name)}
}

// Hosts returns the directories of a fabric on this machine, those that are there. A spec of
// several hosts may lack its options.
func Hosts(ctx context.Context, text string) ([]*status.Directory, error) {
	all, err := findHosts(text)
	return readHosts(ctx, all, false), err
}

func findHosts(text string) (all []*found, err error) {
	s, err := spec.ForDirectory(text)
	if err != nil {
		return nil, err
	}
	nodes := []int{0}
	switch {
	case s.Several() && spec.IsPath(s.Name):
		if nodes, err = s.PlaceOf(0).Hosts(spec.MaxNodes); err != nil {
			return nil, err
		}
		nodes = slices.DeleteFunc(nodes, func(n int) bool { return n == 0 })
	case s.Several():
		nodes = nil
		for n := 1; n <= spec.MaxNodes; n++ {
			if _, err := s.PlaceOf(n).Look(); err == nil {
				nodes = append(nodes, n)
			}
		}
	}
	for _, n := range nodes {
		all = append(all, &found{status.Directory{Fabric: s.Name, Node: n}, s.PlaceOf(n)})
	}
	return all, nil
}

// readHosts reads each directory and asks its processes. If leave is set, it leaves out directories that were removed meanwhile.
func readHosts(ctx context.Context, all []*found, leave bool) (read []*status.Directory) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	for _, h := range all {
		h.Directory.Directory, h.Processes = h.place.Path(), []*status.Process{}
		kind, err := h.read(ctx)
		if err != nil {
			h.Error = err.Error()
		}
		if leave && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)) {
			continue
		}
		if h.Node == 0 {
			kind = "shm"
		}
		if kind != "" {
			h.Fabric = kind + ":" + h.Fabric
		}
		read = append(read, &h.Directory)
	}
	return read
}

// read reads the claims of the host, and asks its processes. It returns the kind of the fabric,
// if a process has said it.
func (h *found) read(ctx context.Context) (kind string, err error) {
	dir, err := hostdir.Open(h.place, false)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := h.place.Look(); gone == nil {
			return "", nil // a directory without claims
		}
	}
	if err != nil {
		return "", err
	}
	defer dir.Close()
	owner, err := h.claims(dir)
	if err != nil {
		return "", err
	}
	gate := make(chan struct{}, askersAtOnce)
	var wg sync.WaitGroup
	lacks := make(chan error, len(h.Processes)) // what this process is out of, such as descriptors
	for _, p := range h.Processes {
		p.Owner = p.Process == owner && h.Node != 0
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if err := complete(ctx, p, dir, h.Node); hostdir.Lack(err) {
				p.Error = err.Error()
				lacks <- spec.Advise(err)
			} else if err != nil {
				p.Error = err.Error()
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(h.Processes, func(p *status.Process) bool { return spec.IsTopology(p.Topology) }); i >= 0 {
		kind = h.Processes[i].Topology
	}
	select {
	case err = <-lacks:
	default:
	}
	return kind, err
}

// claims reads what the processes of the host have claimed, and which of them owns its links.
func (h *found) claims(dir *hostdir.Dir) (owner int, err error) {
	numbers, err := dir.Processes()
	if err != nil {
		return 0, err
	}
	holdings, err := dir.Holdings()
	if err != nil {
		return 0, err
	}
	for _, n := range numbers {
		h.Processes = append(h.Processes, &status.Process{Process: n, Node: max(h.Node, 1), UID: -1, GID: -1, Ports: portsOf(holdings, n)})
	}
	if h.Dead, err = dir.Dead(); err != nil {
		return 0, err
	}
	owner, _, err = dir.Owner()
	return owner, err
}

// portsOf returns the ports that a process holds.
func portsOf(all []hostdir.Holding, process int) []string {
	ports := []string{}
	for _, h := range all {
		network := "sdp"
		if h.TCP {
			network = "tcp"
		}
		if h.Process == process {
			ports = append(ports, fmt.Sprintf("%s:%d", network, h.Port))
		}
	}
	return ports
}

// askStatus asks the process at the other end of a cable, which it closes.
func askStatus(ctx context.Context, c greeting.Cable) (*status.Process, error) {
	answer, release, err := greeting.Ask(ctx, c, &greeting.Message{Version: greeting.Version, Ring: link.Version, Want: greeting.WantStatus})
	if err != nil {
		return nil, err
	}
	release()
	c.Close()
	switch {
	case answer.Version != greeting.Version:
		return nil, fmt.Errorf("%w: it greets in version %d, this program in %d: update the side with the lower one", greeting.ErrMismatch, answer.Version, greeting.Version)
	case answer.Status == nil || answer.Refused != "":
		return nil, fmt.Errorf("%w: it says nothing of itself: %.200q", greeting.ErrNoGreeting, answer.Refused)
	}
	return answer.Status, nil
}

// complete asks a process for its status, and the kernel for its user. It checks the answer. What
// the directory and the kernel say counts.
func complete(ctx context.Context, p *status.Process, dir *hostdir.Dir, node int) error {
	ctx, cancel := context.WithTimeout(ctx, greeting.CheckTimeout)
	defer cancel()
	c, err := greeting.ConnectIn(ctx, dir, node, p.Process)
	if err != nil {
		return err
	}
	who, err := c.Peer()
	if err != nil {
		c.Close()
		return err
	}
	p.PID, p.UID, p.GID, p.User = who.PID, who.UID, who.GID, hostdir.UserName(who.UID)
	if who.UID < 0 {
		p.User = "unknown"
	}
	s, err := askStatus(ctx, c)
	if err != nil {
		return greeting.Stopped(who.PID, err)
	}
	switch {
	case s.Process != p.Process || s.Node != p.Node:
		return fmt.Errorf("%w: it says that it is process %d of node %d", greeting.ErrNoGreeting, s.Process, s.Node)
	case spec.IsTopology(s.Topology) != (node != 0):
		return fmt.Errorf("%w: it says that the fabric is a %.8q", greeting.ErrNoGreeting, s.Topology)
	case len(s.Connections) > greeting.MaxPeerings:
		return fmt.Errorf("%w: it says that it has connections with %d processes", greeting.ErrNoGreeting, len(s.Connections))
	}
	for _, o := range s.Connections {
		if o.Node < 0 || o.Node > spec.MaxNodes || o.Process < 0 || o.Process > hostdir.MaxPort || o.Count < 0 || o.Count > greeting.MaxConnections {
			return fmt.Errorf("%w: it says that it has %d connections with process %d of node %d", greeting.ErrNoGreeting, o.Count, o.Process, o.Node)
		}
	}
	s.PID, s.UID, s.GID, s.User, s.Owner, s.Ports, s.Error = p.PID, p.UID, p.GID, p.User, p.Owner, p.Ports, ""
	*p = *s
	return nil
}

// RemoveDead removes the sockets of processes that have ended from the directories of a fabric, or with no name
// from those of all fabrics of this user that have one. Of the latter it removes directories in which no
// process is. It returns the paths of what it has removed.
func RemoveDead(text string) (removed []string, err error) {
	all, err := ownHosts()
	if text != "" {
		all, err = findHosts(text)
	}
	for _, h := range all {
		paths, e := removeDead(h.place)
		removed, err = append(removed, paths...), errors.Join(err, e)
	}
	return removed, err
}

func removeDead(place hostdir.Place) (removed []string, err error) {
	var processes []int
	dir, err := hostdir.Open(place, false)
	if err == nil {
		removed, err = dir.RemoveDead()
		n, e := dir.Processes()
		processes, err = n, errors.Join(err, e)
		dir.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) || !place.Named() || len(processes) > 0 {
		return removed, err
	}
	switch err := hostdir.Remove(place); {
	case err == nil:
		return append(removed, place.Path()), nil
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.ESTALE):
		return removed, nil // another process has just come, or removes it too
	default:
		return removed, err
	}
}
