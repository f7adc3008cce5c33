package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

// topology asks the nodes of a fabric of several hosts for what they know. This
// process is not a node of it.
func topology(ctx context.Context, c *command, args []string, out io.Writer) error {
	fs := c.flagSet(out, "")
	name := fs.String("fabric", "", "`ring:NAME`, line:NAME or mesh:NAME; options after it do not count (default SDP_FABRIC, or else "+spec.File+")")
	asJSON := fs.Bool("json", false, "print all that the nodes tell, as JSON")
	svg := fs.String("svg", "", "write a picture to `FILE` too, as SVG")
	if err := parse(fs, args, out); err != nil {
		return err
	}
	from := "--fabric"
	if *name == "" {
		var err error
		if *name, _, err = spec.Default(); err != nil {
			return err
		}
		from = "name one by --fabric or SDP_FABRIC"
	}
	t, err := census.ReadTopology(ctx, *name)
	if errors.Is(err, syscall.EINVAL) {
		return badInputf("%s: %w", from, err)
	}
	if err != nil {
		return err
	}
	if *svg != "" {
		var picture bytes.Buffer
		if err := writeCircle(&picture, drawTopology(t)); err != nil {
			return err
		}
		if err := os.WriteFile(*svg, picture.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if *asJSON {
		return writeJSON(out, t)
	}
	return printTopology(plain{out}, t)
}

// stateUp is the state that the fabric reports for a link or a route that works.
const stateUp = "up"

func printTopology(out io.Writer, t *status.Fabric) error {
	fmt.Fprintf(out, "%s: a %s of %d nodes, %d running here, lanes=%d\n\n", t.Fabric, t.Topology, t.Nodes, len(t.Views), t.Lanes)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "node\tprocess\trunning for\trefused\troutes")
	for _, v := range t.Views {
		fmt.Fprintf(w, "node%d\t%d\t%s\t%d\t%s\n", v.Node, v.PID, duration(v.Uptime), v.Refused, routes(v))
	}
	for _, o := range t.Others {
		fmt.Fprintf(w, "node%d\t%s\n", o.Host, remote(o))
	}
	for _, node := range t.Absent {
		fmt.Fprintf(w, "node%d\t%s\n", node, absence(t, node))
	}
	for _, node := range slices.Sorted(maps.Keys(t.Silent)) {
		fmt.Fprintf(w, "node%d\tno answer\n", node)
	}
	fmt.Fprintln(w, "\nlink\tbetween\tstate\tepochs\tup, times\tfor\tforwarded →, ←\town frames →, ←")
	for _, l := range t.Wires {
		a, b := ends(t, l)
		fmt.Fprintf(w, "%d\tnode%d - node%d\t%s\t%s %s\t%d %d\t%s\t%s, %s\t%s, %s\n", l.Wire, l.From, l.To, l.State,
			epoch(a), epoch(b), a.Ups, b.Ups, duration(max(a.Since, b.Since)),
			amount(a.ForwardedBytes), amount(b.ForwardedBytes), amount(a.OwnBytes), amount(b.OwnBytes))
	}
	printForwarders(w, t)
	printMembers(w, t)
	if list := complaints(t); len(list) > 0 {
		fmt.Fprintln(w, "\n"+strings.Join(list, "\n"))
	}
	return w.Flush()
}

// remote returns what is known of a node that nobody on this machine can ask.
func remote(o status.Host) string {
	if n := len(o.Members); n > 0 {
		return fmt.Sprintf("on another machine, %d more", n)
	}
	return "on another machine"
}

// absence returns why a node has not answered: it does not run, or it is awaited.
func absence(t *status.Fabric, node int) string {
	if n := t.Waiting[node]; n > 0 {
		return fmt.Sprintf("no owner, %d waiting", n)
	}
	return "not there"
}

// printForwarders prints what the nodes' workers of lanes have done since the links came up, what
// the nodes have dropped, and the processor time of their processes.
func printForwarders(w io.Writer, t *status.Fabric) {
	head := "\nnode\tforwarded\twake-ups\trests\tyields\tdropped\tCPU\n"
	for _, v := range t.Views {
		var forwarded, wakes, rests, yields uint64
		for _, l := range v.Links {
			forwarded += l.ForwardedFrames
			wakes += l.Wakes
			rests += l.Rests
			yields += l.Yields
		}
		fmt.Fprintf(w, "%snode%d\t%s\t%d\t%d\t%d\t%s\t%s\n", head, v.Node, frames(forwarded), wakes, rests, yields, drops(v.Drops), cpuText(v.CPU))
		head = ""
	}
}

func frames(n uint64) string {
	if n == 1 {
		return "1 frame"
	}
	return fmt.Sprintf("%d frames", n)
}

// drops returns how many frames were dropped, and why.
func drops(reasons map[string]uint64) string {
	var sum uint64
	var list []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		sum += reasons[why]
		list = append(list, fmt.Sprintf("%s %d", why, reasons[why]))
	}
	if len(list) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(list, ", "))
}

// cpuText returns a processor time in seconds, or "-" if it is not known.
func cpuText(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", seconds)
}

// printMembers prints the processes that use the links of another one.
func printMembers(w io.Writer, t *status.Fabric) {
	head := "\nmember\tof\tprocess\tuplink\tepoch\tfor\tframes to it, from it\n"
	for _, v := range t.Views {
		for _, m := range members(v) {
			fmt.Fprintf(w, "%snode%d.%d\tnode%d.%d\t%d\t%s\t%08x\t%s\t%s, %s\n", head, v.Node, m.Process, v.Node, v.Process, m.PID,
				m.State, m.Epoch, duration(m.Since), amount(m.OwnBytes+m.ForwardedBytes), amount(m.ReceivedBytes))
			head = ""
		}
	}
}

// members returns the links to processes that use those of this one.
func members(v *status.Process) (all []status.Link) {
	for _, l := range v.Links {
		if l.Direction == "down" {
			all = append(all, l)
		}
	}
	return all
}

// ends returns what the nodes report about the ends of a wire. It is zero where a node does not
// answer.
func ends(t *status.Fabric, wire status.Link) (a, b status.Link) {
	of := func(node int) (l status.Link) {
		if v := t.View(node); v != nil && v.Link(wire.Wire) != nil {
			l = *v.Link(wire.Wire)
		}
		return l
	}
	return of(wire.From), of(wire.To)
}

// epoch returns the epoch of a link, on which both ends agree. It is "-" while the
// link is not up.
func epoch(l status.Link) string {
	if l.Epoch == 0 {
		return "-"
	}
	return fmt.Sprintf("%08x", l.Epoch)
}

// routes returns the routes of a node: destination, direction, and number of links.
func routes(v *status.Process) string {
	var list []string
	for _, r := range v.Hosts {
		switch {
		case r.Direction != "":
			list = append(list, fmt.Sprintf("%d:%s/%d", r.Host, r.Direction, r.Hops))
		case r.State != "self":
			list = append(list, fmt.Sprintf("%d:-", r.Host))
		}
	}
	return strings.Join(list, " ")
}

// complaints returns a line for each fault.
func complaints(t *status.Fabric) []string {
	var list []string
	for _, l := range t.Wires {
		if l.Error != "" && l.State != stateUp {
			list = append(list, oneLine(fmt.Sprintf("link %d is %s: %s", l.Wire, l.State, l.Error)))
		}
	}
	for _, v := range t.Views {
		if v.Refused > 0 {
			list = append(list, oneLine(fmt.Sprintf("node%d has refused %d, the last one because: %s", v.Node, v.Refused, v.LastRefusal)))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(t.Silent)) {
		list = append(list, oneLine(fmt.Sprintf("node%d gives no answer: %s", node, t.Silent[node])))
	}
	return list
}

func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// amount returns a number of bytes in decimal units, short.
func amount(n uint64) string {
	v, unit := float64(n), 0
	for ; v >= 1000 && unit < len(units)-1; unit++ {
		v /= 1000
	}
	return fmt.Sprintf("%.3g %s", v, units[unit])
}

var units = []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}

func drawTopology(t *status.Fabric) circle {
	c := circle{Title: fmt.Sprintf("%s: a %s of %d nodes, lanes=%d", t.Fabric, t.Topology, t.Nodes, t.Lanes), Notes: complaints(t)}
	for node := 1; node <= t.Nodes; node++ {
		c.Nodes = append(c.Nodes, circleNode{Name: fmt.Sprintf("node%d", node), Note: absence(t, node), mark: missing})
	}
	for _, v := range t.Views {
		note := fmt.Sprintf("process %d", v.PID)
		if n := len(members(v)); n > 0 {
			note += fmt.Sprintf(" and %d more", n)
		}
		c.Nodes[v.Node-1].Note, c.Nodes[v.Node-1].mark = note, good
	}
	for _, o := range t.Others {
		c.Nodes[o.Host-1].Note, c.Nodes[o.Host-1].mark = remote(o), good
	}
	for node := range t.Silent {
		if node <= len(c.Nodes) {
			c.Nodes[node-1].Note, c.Nodes[node-1].mark = "no answer", bad
		}
	}
	for _, l := range t.Wires {
		e := edge{From: l.From - 1, To: l.To - 1, Note: l.State, mark: bad}
		switch {
		case l.State == stateUp:
			e.mark, e.Note = good, ""
			if a, b := ends(t, l); a.ForwardedBytes+b.ForwardedBytes > 0 {
				e.Note = fmt.Sprintf("forwarded to node%d %s, to node%d %s", l.To, amount(a.ForwardedBytes), l.From, amount(b.ForwardedBytes))
			}
		case l.State == "absent":
			e.mark, e.Note = missing, ""
		}
		c.Edges = append(c.Edges, e)
	}
	return c
}
