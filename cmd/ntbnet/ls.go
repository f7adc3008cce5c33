package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ntbnet/ntbnet/internal/fabric"
)

// list shows fabrics of this machine and who is in them.
func list(ctx context.Context, c *command, args []string, out io.Writer) error {
	fs := c.flagSet(out, "")
	name := fs.String("fabric", "", "one `FABRIC` only, such as shm:NAME or ring:/PATH (default all of this user, and the directory of SDP_FABRIC or "+fabric.File+")")
	remove := fs.Bool("remove", false, "remove what is dead: sockets of processes that have ended, directories of this user's fabrics without processes")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if err := parse(fs, args, out); err != nil {
		return err
	}
	if *name != "" {
		if err := fabric.CheckDirectory(*name); err != nil {
			return badInputf("--fabric: %w", err)
		}
	}
	report, err := readList(ctx, *name)
	if err != nil {
		return err
	}
	var removeErr error
	if *remove {
		removeErr = report.remove()
	}
	write := report.table
	if *asJSON {
		write = func(out io.Writer) error { return writeJSON(out, report) }
	}
	return errors.Join(write(out), removeErr, report.failed())
}

// listing has the fabrics of this machine that were looked for.
type listing struct {
	Fabrics []*fabric.HostView `json:"fabrics"`
	Removed []string           `json:"removed,omitempty"` // paths
}

// readList finds out who is in a fabric. With no name it finds the fabrics of this user that have a
// name, and the one of this process, if that is the path of a directory.
func readList(ctx context.Context, name string) (*listing, error) {
	if name != "" {
		hosts, err := fabric.Hosts(ctx, name)
		return &listing{Fabrics: hosts}, err
	}
	hosts, err := fabric.OwnHosts(ctx)
	if err != nil {
		return nil, err
	}
	spec, _, err := fabric.Default()
	if err != nil {
		return nil, err
	}
	if strings.Contains(spec, ":/") {
		named, err := fabric.Hosts(ctx, spec)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, named...)
	}
	return &listing{Fabrics: hosts}, nil
}

// remove removes the sockets of processes that have ended, and those directories of this user's
// fabrics in which no process is. The report shows what is left, and what was removed.
func (r *listing) remove() error {
	var failed error
	left := []*fabric.HostView{}
	for _, h := range r.Fabrics {
		removed, err := h.RemoveDead()
		failed = errors.Join(failed, err)
		r.Removed = append(r.Removed, removed...)
		if len(removed) == 0 || removed[len(removed)-1] != h.Directory {
			left = append(left, h)
		}
	}
	r.Fabrics = left
	return failed
}

// failed returns an error if a directory could not be read.
func (r *listing) failed() error {
	for _, h := range r.Fabrics {
		if h.Error != "" {
			return errors.New(h.Error)
		}
	}
	return nil
}

// table writes the report as text.
func (r *listing) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, path := range r.Removed {
		fmt.Fprintf(w, "removed %s\n", path)
	}
	if len(r.Fabrics) == 0 {
		fmt.Fprintln(w, "no fabric")
	}
	first, empty, dead := len(r.Removed) == 0, 0, 0
	for _, h := range r.Fabrics {
		if len(r.Fabrics) > 1 && h.Error == "" && len(h.Processes) == 0 {
			empty++
			dead += len(h.Dead)
			continue
		}
		if !first {
			fmt.Fprintln(w)
		}
		first = false
		writeHost(w, h)
	}
	if empty > 0 {
		fmt.Fprintf(w, "\ndirectories of fabrics without a process: %d, with %d sockets of processes that have ended; --json names them, --remove removes those of this user\n", empty, dead)
	}
	return w.Flush()
}

func writeHost(w io.Writer, h *fabric.HostView) {
	node := ""
	if h.Node != 0 {
		node = " node " + fmt.Sprint(h.Node)
	}
	fmt.Fprintf(w, "%s%s in %s\n", h.Fabric, node, h.Directory)
	switch {
	case h.Error != "":
		fmt.Fprintf(w, "  %s\n", oneLine(h.Error))
	case len(h.Processes) == 0:
		fmt.Fprintln(w, "  no process")
	default:
		fmt.Fprintln(w, "  process\tpid\tuser\tlistens on\tconnections")
	}
	for _, p := range h.Processes {
		fmt.Fprintf(w, "  %d%s\t%s\t%s\t%s\t%s\n", p.Process, owner(p.Owner), pid(p.User), user(p.User), ports(p.Ports), connections(h, &p))
	}
	for _, p := range h.Processes {
		if p.Error != "" {
			fmt.Fprintf(w, "  process %d: %s\n", p.Process, oneLine(p.Error))
		}
	}
	if n := len(h.Dead); n > 0 {
		fmt.Fprintf(w, "  of processes that have ended: %d; --json names them, --remove removes those of this user\n", n)
	}
}

func owner(yes bool) string {
	if yes {
		return " (owns the links)"
	}
	return ""
}

func pid(u *fabric.UserView) string {
	switch {
	case u == nil:
		return "-"
	case u.PID == 0:
		return "elsewhere" // in another pid namespace
	}
	return fmt.Sprint(u.PID)
}

func user(u *fabric.UserView) string {
	if u == nil {
		return "-"
	}
	return fmt.Sprintf("%s (uid %d)", u.Name, u.UID)
}

func ports(all []fabric.PortView) string {
	var list []string
	for _, p := range all {
		list = append(list, fmt.Sprintf("%s :%d", p.Network, p.Port))
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// connections returns how many connections the process has, and with whom.
func connections(h *fabric.HostView, p *fabric.ProcessView) string {
	if p.Error != "" {
		return "?"
	}
	var list []string
	for _, o := range p.Peers {
		name := fmt.Sprintf("process %d", o.Process)
		if h.Node != 0 {
			name = fmt.Sprintf("node%d.%d", o.Node, o.Process)
		}
		list = append(list, fmt.Sprintf("%d with %s", o.Connections, name))
	}
	if len(list) == 0 {
		return "0"
	}
	return strings.Join(list, ", ")
}
