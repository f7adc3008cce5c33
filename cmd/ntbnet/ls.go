package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

// listing is what ls prints.
type listing struct {
	Fabrics []*status.Directory `json:"fabrics"`
	Removed []string            `json:"removed,omitempty"` // paths
}

// list shows fabrics of this machine and who is in them.
func list(ctx context.Context, c *command, args []string, out io.Writer) error {
	fs := c.flagSet(out, "\nRoot sees those of other users too, without asking their processes.\n")
	name := fs.String("fabric", "", "one `FABRIC` only, such as shm:NAME or ring:/PATH (default all of this user, and the directory of SDP_FABRIC or "+spec.File+")")
	remove := fs.Bool("remove", false, "remove what is dead: sockets of processes that have ended, directories of this user's fabrics without processes")
	asJSON := fs.Bool("json", false, "print the result as JSON, with what is dead")
	if err := parse(fs, args, out); err != nil {
		return err
	}
	r := listing{Fabrics: []*status.Directory{}}
	var failed error
	if *remove {
		r.Removed, failed = census.RemoveDead(*name)
	}
	fabrics, err := readFabrics(ctx, *name)
	if err != nil {
		return err
	}
	if *name == "" && os.Geteuid() == 0 {
		fabrics = append(fabrics, census.Foreign()...)
	}
	for _, d := range fabrics {
		if !slices.Contains(r.Removed, d.Directory) {
			r.Fabrics = append(r.Fabrics, d)
		}
	}
	write := r.table
	if *asJSON {
		write = func(out io.Writer) error { return writeJSON(out, r) }
	}
	failed = errors.Join(failed, write(plain{out}))
	for _, d := range r.Fabrics {
		if d.Error != "" && d.User == "" {
			return errors.Join(failed, errors.New(d.Error))
		}
	}
	return failed
}

// readFabrics finds out who is in a fabric. With no name it finds the fabrics of this user that have a
// name, and the one of this process, if that is the path of a directory.
func readFabrics(ctx context.Context, name string) ([]*status.Directory, error) {
	if name != "" {
		if _, err := spec.ForDirectory(name); err != nil {
			return nil, badInputf("--fabric: %w", err)
		}
		return census.Hosts(ctx, name)
	}
	all, err := census.OwnHosts(ctx)
	if err != nil {
		return nil, err
	}
	spec, _, err := spec.Default()
	if err == nil && strings.Contains(spec, ":/") {
		var named []*status.Directory
		named, err = census.Hosts(ctx, spec)
		all = append(all, named...)
	}
	return all, err
}

// table writes the report as text: the living. Of what is dead there is a line.
func (r *listing) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, path := range r.Removed {
		fmt.Fprintf(w, "removed %s\n", path)
	}
	shown, empty, dead := len(r.Removed), 0, 0
	for _, d := range r.Fabrics {
		dead += len(d.Dead)
		if d.Error == "" && len(d.Processes) == 0 {
			empty++
			continue
		}
		if shown > 0 {
			fmt.Fprintln(w)
		}
		shown++
		writeDirectory(w, d)
	}
	if shown == 0 {
		fmt.Fprintln(w, "no process")
	}
	if empty+dead > 0 {
		fmt.Fprintf(w, "\nleft behind: %d directories without a process, %d sockets of processes that have ended; --json names them, --remove removes those of this user\n", empty, dead)
	}
	return w.Flush()
}

func writeDirectory(w io.Writer, d *status.Directory) {
	node := ""
	if d.Node != 0 {
		node = fmt.Sprintf(" node %d", d.Node)
	}
	if d.User != "" {
		node += " of " + d.User
	}
	fmt.Fprintf(w, "%s%s in %s\n", oneLine(cmp.Or(d.Fabric, "all fabrics")), node, oneLine(d.Directory))
	if d.Error != "" {
		fmt.Fprintf(w, "  %s\n", oneLine(d.Error))
		return
	}
	fmt.Fprintln(w, "  process\tpid\tuser\tlistens on\tconnections")
	for _, p := range d.Processes {
		owner, pid, user := "", "-", "-"
		if p.Owner {
			owner = " (owns the links)"
		}
		if p.User != "" {
			pid, user = fmt.Sprint(p.PID), fmt.Sprintf("%s (uid %d)", p.User, p.UID)
			if p.PID == 0 {
				pid = "other-ns" // in another pid namespace
			}
		}
		ports := strings.ReplaceAll(strings.Join(p.Ports, ", "), ":", " :")
		if ports == "" {
			ports = "-"
		}
		fmt.Fprintf(w, "  %d%s\t%s\t%s\t%s\t%s\n", p.Process, owner, pid, user, ports, connections(d, p))
	}
	for _, p := range d.Processes {
		if p.Error != "" {
			fmt.Fprintf(w, "  process %d: %s\n", p.Process, oneLine(p.Error))
		}
	}
}

// connections returns how many connections the process has, and with which.
func connections(d *status.Directory, p *status.Process) string {
	var list []string
	for _, o := range status.Counted(p.Connections) {
		list = append(list, fmt.Sprintf("%d with %s", o.Count, peer(d, o.Node, o.Process)))
	}
	switch {
	case p.Error != "" || p.User == "":
		return "?"
	case len(list) == 0:
		return "0"
	}
	return strings.Join(list, ", ")
}

// peer returns the name of a process at the other end of a connection.
func peer(d *status.Directory, node, process int) string {
	if d.Node != 0 {
		return fmt.Sprintf("node%d.%d", node, process)
	}
	return fmt.Sprintf("process %d", process)
}
