package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
)

// HostView is a directory of this machine in which processes of a fabric meet, and those
// processes. Who asks does not become one of them.
type HostView struct {
	Fabric    string        `json:"fabric"`         // such as "shm:NAME"; "NAME" if no process says of which kind it is
	Node      int           `json:"node,omitempty"` // 0 where there is one host
	Directory string        `json:"directory"`
	Error     string        `json:"error,omitempty"` // why it cannot be used
	Processes []ProcessView `json:"processes"`
	// Dead are the sockets of processes that have ended.
	Dead []string `json:"dead,omitempty"`

	place hostdir.Place
}

// ProcessView is a process of a host.
type ProcessView struct {
	Process int `json:"process"` // its number on the host
	// User is the user, as the kernel says, when the process began to listen for cables. It is
	// nil if the process cannot be reached.
	User  *UserView  `json:"user,omitempty"`
	Owner bool       `json:"owns_links,omitempty"` // of its node to others
	Ports []PortView `json:"ports"`
	// Connections are those of SDP, as the process says.
	Connections int       `json:"connections"`
	Peers       []Peering `json:"peers,omitempty"`
	Error       string    `json:"error,omitempty"` // why it does not say more
}

// UserView is the user of a process.
type UserView struct {
	PID  int    `json:"pid,omitempty"` // 0 if it is of another pid namespace
	UID  int    `json:"uid"`           // -1 if it has no number in this user namespace
	GID  int    `json:"gid"`           // likewise
	Name string `json:"name"`
}

// PortView is a port on which a process listens.
type PortView struct {
	Port    int    `json:"port"`
	Network string `json:"network"` // "sdp" or "tcp"
}

// Peering are the connections of a process with one other.
type Peering struct {
	Node        int `json:"node"`
	Process     int `json:"process"`
	Connections int `json:"connections"`
}

const (
	maxPeerings    = 8192 // in an answer, which has at most maxAnswer bytes
	maxConnections = 1 << 30
	askersAtOnce   = 64
	censusTimeout  = 10 * time.Second
)

// Describe has f report the connections of this process, by node, to those who ask. It is called
// before any peer can come up.
func (f *Fabric) Describe(connections func() map[link.ID]int) {
	f.net.peers = func() []Peering {
		var all []Peering
		for id, n := range connections() {
			if n > 0 {
				all = append(all, Peering{Node: id.Host(), Process: id.Process(), Connections: n})
			}
		}
		slices.SortFunc(all, func(a, b Peering) int { return cmp.Or(a.Node-b.Node, a.Process-b.Process) })
		return all
	}
}

// peerings returns what this process answers who asks for its connections.
func (h *hosts) peerings() []Peering {
	if h.peers == nil {
		return nil
	}
	all := h.peers()
	return all[:min(len(all), maxPeerings)]
}

// OwnHosts returns the directories of all fabrics of this user that have a name.
func OwnHosts(ctx context.Context) ([]*HostView, error) {
	var all []*HostView
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
	readHosts(ctx, all)
	return all, nil
}

// ownHost returns the view of a directory of this user's fabrics, or nil if it has not the name of
// one.
func ownHost(base, name string) *HostView {
	fabric, digits, several := strings.Cut(name, "@")
	node, _ := strconv.Atoi(digits)
	if checkName(fabric) != nil || several && (node < 1 || hostName(fabric, node) != name) {
		return nil
	}
	return &HostView{Fabric: fabric, Node: node, place: hostdir.In(base, name)}
}

// Hosts returns the directories of a fabric on this machine, those that are there. A spec of
// several hosts may lack its options.
func Hosts(ctx context.Context, text string) ([]*HostView, error) {
	spec, err := directorySpec(text)
	if err != nil {
		return nil, err
	}
	nodes := []int{0}
	switch {
	case spec.hosts() && isPath(spec.Name):
		if nodes, err = spec.place(0).Hosts(maxNodes); err != nil {
			return nil, err
		}
		nodes = slices.DeleteFunc(nodes, func(n int) bool { return n == 0 })
	case spec.hosts():
		nodes = nil
		for n := 1; n <= maxNodes; n++ {
			if _, err := spec.place(n).Look(); err == nil {
				nodes = append(nodes, n)
			}
		}
	}
	var all []*HostView
	for _, n := range nodes {
		all = append(all, &HostView{Fabric: spec.Name, Node: n, place: spec.place(n)})
	}
	readHosts(ctx, all)
	return all, nil
}

// CheckDirectory returns an error unless Hosts can look for the fabric.
func CheckDirectory(text string) error {
	_, err := directorySpec(text)
	return err
}

// directorySpec returns as much of a spec as it takes to find the directories.
func directorySpec(text string) (*Spec, error) {
	if kind, _, _ := strings.Cut(text, ":"); isTopology(kind) {
		return topologySpec(text)
	}
	spec, err := ParseSpec(text)
	if err == nil && spec.Backend == "mem" {
		err = fmt.Errorf("fabric %q: is within one process, and has no directory: %w", text, syscall.EINVAL)
	}
	return spec, err
}

// readHosts completes the views of hosts.
func readHosts(ctx context.Context, all []*HostView) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	for _, h := range all {
		h.Directory, h.Processes = h.place.Path(), []ProcessView{}
		kind, err := h.read(ctx)
		if err != nil {
			h.Error = err.Error()
		}
		if h.Node == 0 {
			kind = "shm"
		}
		if kind != "" {
			h.Fabric = kind + ":" + h.Fabric
		}
	}
}

// read reads the claims of the host, and asks its processes. It returns the kind of the fabric,
// if a process has said it.
func (h *HostView) read(ctx context.Context) (kind string, err error) {
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
	kinds := make([]string, len(h.Processes))
	gate := make(chan struct{}, askersAtOnce)
	var wg sync.WaitGroup
	for i := range h.Processes {
		p := &h.Processes[i]
		p.Owner = p.Process == owner && h.Node != 0
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			var err error
			if kinds[i], err = p.ask(ctx, dir, h.Node); err != nil {
				p.Error = err.Error()
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(kinds, isTopology); i >= 0 {
		kind = kinds[i]
	}
	return kind, nil
}

// claims reads what the processes of the host have claimed, and which of them owns its links.
func (h *HostView) claims(dir *hostdir.Dir) (owner int, err error) {
	numbers, err := dir.Processes()
	if err != nil {
		return 0, err
	}
	holdings, err := dir.Holdings()
	if err != nil {
		return 0, err
	}
	for _, n := range numbers {
		h.Processes = append(h.Processes, ProcessView{Process: n, Ports: portsOf(holdings, n)})
	}
	if h.Dead, err = dir.Dead(); err != nil {
		return 0, err
	}
	owner, _, err = dir.Owner()
	return owner, err
}

// portsOf returns the ports that a process holds.
func portsOf(all []hostdir.Holding, process int) []PortView {
	ports := []PortView{}
	for _, h := range all {
		if h.Process != process {
			continue
		}
		v := PortView{Port: h.Port, Network: "sdp"}
		if h.TCP {
			v.Network = "tcp"
		}
		ports = append(ports, v)
	}
	return ports
}

// ask asks the process for its connections, and the kernel for its user. It checks the answer.
func (p *ProcessView) ask(ctx context.Context, dir *hostdir.Dir, node int) (kind string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c, err := connectIn(ctx, dir, node, p.Process)
	if err != nil {
		return "", err
	}
	who, err := c.peer()
	if err != nil {
		c.Close()
		return "", err
	}
	p.User = &UserView{PID: who.PID, UID: who.UID, GID: who.GID, Name: hostdir.UserName(who.UID)}
	if who.UID < 0 {
		p.User.Name = "unknown"
	}
	answer, release, err := ask(ctx, c, &greeting{Version: greetingVersion, Ring: link.Version, Want: wantPeers})
	if err != nil {
		return "", err
	}
	release()
	c.Close()
	switch {
	case answer.Version != greetingVersion:
		return "", fmt.Errorf("%w: it greets in version %d, this program in %d", ErrMismatch, answer.Version, greetingVersion)
	case answer.Refused != "":
		return "", fmt.Errorf("%w: it tells nothing: %.200q", errGreeting, answer.Refused)
	case answer.Process != p.Process || answer.Node != max(node, 1):
		return "", fmt.Errorf("%w: it says that it is process %d of node %d", errGreeting, answer.Process, answer.Node)
	case isTopology(answer.Topology) != (node != 0):
		return "", fmt.Errorf("%w: it says that the fabric is a %.8q", errGreeting, answer.Topology)
	}
	return answer.Topology, p.take(answer.Peers)
}

// take takes what the process says of its connections, if it can be true.
func (p *ProcessView) take(peers []Peering) error {
	sum := 0
	for _, o := range peers {
		if o.Node < 0 || o.Node > maxNodes || o.Process < 0 || o.Process > hostdir.MaxPort || o.Connections < 0 || o.Connections > maxConnections {
			return fmt.Errorf("%w: it says that it has %d connections with process %d of node %d", errGreeting, o.Connections, o.Process, o.Node)
		}
		sum += o.Connections
	}
	if len(peers) > maxPeerings {
		return fmt.Errorf("%w: it says that it has connections with %d processes", errGreeting, len(peers))
	}
	p.Peers, p.Connections = peers, sum
	return nil
}

// RemoveDead removes the sockets of processes of the host that have ended, and, if it is one of
// a fabric of this user that has a name, the directory if no process is there. It returns the paths
// of what it has removed, which the view no longer shows.
func (h *HostView) RemoveDead() (removed []string, err error) {
	dir, err := hostdir.Open(h.place, false)
	if err == nil {
		removed, err = dir.RemoveDead()
		dir.Close()
	}
	h.Dead = slices.DeleteFunc(h.Dead, func(path string) bool { return slices.Contains(removed, path) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) || !h.place.Named() || len(h.Processes) > 0 {
		return removed, err
	}
	switch err := hostdir.Remove(h.place); {
	case err == nil:
		return append(removed, h.Directory), nil
	case errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.ESTALE):
		return removed, nil // another process has just come, or removes it too
	default:
		return removed, err
	}
}

// Place returns where the processes of this spec's host meet.
func (s *Spec) Place() hostdir.Place { return s.place(s.Node) }

// Member returns the text of a spec with which a process comes to the same host of the fabric,
// and owns no links.
func (s *Spec) Member() string {
	v := url.Values{}
	if s.Group != "" {
		v.Set("group", s.Group)
	}
	if len(s.Owners) > 0 {
		v.Set("owner", strings.Join(s.Owners, ","))
	}
	if s.Node != 0 {
		v.Set("node", strconv.Itoa(s.Node))
	}
	if s.Window != 0 {
		v.Set("window", strconv.Itoa(s.Window))
	}
	if s.hosts() && s.Backend == "mem" {
		v.Set("backend", s.Backend)
	}
	text := s.Kind + ":" + s.Name
	if len(v) > 0 {
		text += "?" + v.Encode()
	}
	return text
}
