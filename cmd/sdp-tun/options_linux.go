package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/user"
	"strconv"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/internal/tun"
)

const usageHead = `sdp-tun carries IP packets between the nodes of a fabric, for programs that
cannot be changed.

Usage: sdp-tun [setup | remove | hosts] [flags]

The fabric is that of SDP_FABRIC or /etc/ntbnet/fabric. It has several nodes.
Each node has a TUN device for each other node, and node n has address n of each
network: with the defaults node 2 is 10.77.0.2 and fd77::2, and device sdp2
leads there. All nodes have the same networks and MTU. A device has a carrier
while its node is there.

Devices are made at the start, by root, and end with the process. Those of setup
stay:
  sdp-tun setup --user NAME    makes and configures them, for a user without
                               capabilities
  sdp-tun remove               removes them
Names for all nodes, as in ping node2, in the form of /etc/hosts:
  sdp-tun hosts >>/etc/hosts
These three want the flags of the daemon, and node=I and nodes=N of SDP_FABRIC.

Examples, on node 1, and then on each other one with its number:
  SDP_FABRIC='ring:lab?node=1&nodes=3' sdp-tun
  ping 10.77.0.2
What is behind node 2 is reached through it; other sources are dropped:
  SDP_FABRIC='ring:lab?node=1&nodes=3' sdp-tun --route 192.168.7.0/24=2

Flags:
`

const usageTail = `
Exit status: 0 after SIGTERM or SIGINT, and of setup, remove and hosts; 1 if it
could not go on, as when a device was removed, renamed or set down; 2 if it
could not start.
`

// options are the parsed command line.
type options struct {
	command string // "", "setup", "remove" or "hosts"
	config  tun.Config
	user    *account // nil for that of the process
	http    string   // where the counters are served, or ""
}

// account is a user that the process becomes.
type account struct {
	uid, gid int
	groups   []int
}

// parseOptions parses the command line. The error is pflag.ErrHelp after it wrote the help or the version to
// stdout. Otherwise it is one line that says what to do.
func parseOptions(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	if len(args) > 0 && (args[0] == "setup" || args[0] == "remove" || args[0] == "hosts") {
		o.command, args = args[0], args[1:]
	}
	c := &o.config
	fs := flags.New("sdp-tun", stdout, usageHead, usageTail)
	net4 := fs.String("net4", "10.77.0.0/24", "IPv4 `NETWORK` of the nodes; empty for none")
	net6 := fs.String("net6", "fd77::/64", "IPv6 `NETWORK` of the nodes; empty for none")
	fs.StringVar(&c.Device, "device", "sdp", "the devices are called `NAME` and the number of a node")
	routes := fs.StringArray("route", nil, "`PREFIX=NODE`: a network behind a node; may be repeated")
	fs.IntVar(&c.MTU, "mtu", 65000, "`BYTES` of a packet, the same on all nodes, for devices that are made")
	queue := flags.Size(1 << 20)
	fs.Var(&queue, "queue", "how much may wait for a node, as in 256K or 1M")
	bare := fs.Bool("no-addresses", false, "give devices no addresses or routes")
	name := new(string)
	if o.command == "" || o.command == "setup" {
		name = fs.String("user", "", "become user `NAME`, which has no capabilities")
	}
	if o.command == "setup" {
		fs.Lookup("user").Usage = "user `NAME`, or a number, may use the devices (default root)"
	}
	if o.command == "" {
		fs.StringVar(&o.http, "http", "", "serve counters for Prometheus at `ADDR`, a port of loopback or unix:/PATH, as in 127.0.0.1:9477")
	}
	if err := flags.Parse(fs, args, stdout); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected %q; commands are setup, remove and hosts, and stand first", fs.Arg(0))
	}
	c.Queue, c.Addresses = int(queue), !*bare
	for _, n := range []struct {
		flag, value string
		to          *netip.Prefix
	}{{"--net4", *net4, &c.Net4}, {"--net6", *net6, &c.Net6}} {
		if n.value == "" {
			continue
		}
		var err error
		if *n.to, err = tun.ParsePrefix(n.flag, n.value); err != nil {
			return nil, err
		}
	}
	for _, text := range *routes {
		r, err := tun.ParseRoute(text)
		if err != nil {
			return nil, err
		}
		c.Routes = append(c.Routes, r)
	}
	if o.http != "" {
		if err := metrics.CheckAddress(o.http); err != nil {
			return nil, fmt.Errorf("--http %w", err)
		}
	}
	if *name != "" {
		var err error
		if o.user, err = lookUp(*name); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// lookUp finds a user, by name or number.
func lookUp(name string) (*account, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return &account{uid: int(n), gid: int(n)}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("--user %q: %w; give a name of this machine, or a number", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("--user %q: %w", name, err)
	}
	var ids []int
	for _, digits := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.Atoi(digits)
		if err != nil {
			return nil, fmt.Errorf("--user %q: %w", name, err)
		}
		ids = append(ids, id)
	}
	return &account{ids[0], ids[1], ids[2:]}, nil
}

// owner returns the user whose devices setup makes.
func (o *options) owner() int {
	if o.user == nil {
		return os.Getuid()
	}
	return o.user.uid
}
