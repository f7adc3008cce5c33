package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is a row of the table.
type row struct {
	test     test
	tcp, sdp string
	note     string
	bad      bool // it counts for the exit status
	output   string
}

// comparison is the result of a suite.
type comparison struct {
	tcp, sdp    results
	rows        []row          // what differs, in order
	connections map[string]int // see transports.connections
}

// differing returns the tests that pass over TCP and do not over SDP. Of a test and
// its subtests, it returns those that fail themselves.
func differing(tcp, sdp results) []test {
	var found []test
	for t, r := range tcp {
		if r.String() == "pass" && sdp[t] != nil && sdp[t].String() != "pass" {
			found = append(found, t)
		}
	}
	// These tests did not run over SDP. The test above did not get that far, or names its
	// subtests anew each time, or the binary ended before.
	for t, r := range tcp {
		if r.String() == "pass" && sdp[t] == nil && sdp[test{t.pkg, t.top()}] == nil {
			if t.name == t.top() {
				found = append(found, t)
			}
		}
	}
	found = slices.DeleteFunc(found, func(t test) bool {
		return slices.ContainsFunc(found, func(o test) bool { return o.pkg == t.pkg && strings.HasPrefix(o.name, t.name+"/") })
	})
	slices.SortFunc(found, func(a, b test) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	return found
}

// judge runs the tests that differ again, and makes the rows.
func judge(ctx context.Context, t *transports, tcp, sdp results, repeat int) (*comparison, error) {
	c := &comparison{tcp: tcp, sdp: sdp}
	for _, d := range differing(tcp, sdp) {
		r := row{test: d, tcp: tcp[d].String(), sdp: sdp[d].String(), bad: true}
		if sdp[d] != nil {
			r.output = sdp[d].output
		}
		if d.name != "" && sdp[d] != nil {
			n := repeat
			if sdp[d].died > 0 {
				n = 1 // it may have died of a time-out
			}
			var again [2]results
			for i, run := range []*runner{t.tcp, t.sdp} {
				again[i] = results{}
				for range n {
					if _, err := run.once(ctx, again[i], []string{d.pkg}, "-run="+pattern(d.name)); err != nil {
						return nil, err
					}
				}
			}
			tcpBad, sdpBad := again[0].bad(d), again[1].bad(d)
			r.note = fmt.Sprintf("again: %d of %d over TCP, %d of %d over SDP do not pass",
				tcpBad, tcpBad+again[0].of(d).passed, sdpBad, sdpBad+again[1].of(d).passed)
			if tcpBad > 0 || sdpBad == 0 {
				r.note = "flaky; " + r.note
				r.bad = false
			}
		}
		if why, ok := reason(d); ok {
			r.note = "known: " + why
			r.bad = false
		}
		c.rows = append(c.rows, r)
	}
	return c, nil
}

// pattern returns a pattern for -run that matches only this test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// bad returns how often a test, or the one above it, did not pass.
func (r results) bad(t test) int {
	sum := r.of(t)
	n := sum.failed + sum.died + sum.skipped
	if top := r.of(test{t.pkg, t.top()}); n == 0 {
		n = top.died
	}
	return n
}

// reason returns the known reason of a difference, if there is one.
func reason(t test) (string, bool) {
	for name := t.name; ; {
		if why, ok := known[test{t.pkg, name}]; ok {
			return why, true
		}
		i := strings.LastIndex(name, "/")
		if i < 0 {
			return "", false
		}
		name = name[:i]
	}
}

// bad reports whether something differs for which no reason is known.
func (c *comparison) bad() bool {
	return slices.ContainsFunc(c.rows, func(r row) bool { return r.bad })
}

// totals returns how many tests, subtests included, had which result, and how they
// connected.
func (c *comparison) totals() string {
	return fmt.Sprintf("TCP: %s; SDP: %s; %d listeners, %d connections by SDP, %d by TCP",
		count(c.tcp), count(c.sdp), c.connections["listen"], c.connections["sdp"], c.connections["tcp"])
}

func count(r results) string {
	n := map[string]int{}
	for t := range r {
		if t.name != "" || r[t].passed == 0 {
			n[r[t].String()]++
		}
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n["pass"], n["fail"]+n["died"], n["skip"])
}

// print writes the output of tests that count for the exit status, and the table:
// what differs, or everything.
func (c *comparison) print(w io.Writer, all bool) {
	for _, r := range c.rows {
		if r.bad {
			fmt.Fprintf(w, "--- %s, over SDP:\n%s\n", r.test, r.output)
		}
	}
	rows := c.rows
	if all {
		for t := range c.tcp {
			if !slices.ContainsFunc(c.rows, func(r row) bool { return r.test == t }) {
				rows = append(rows, row{test: t, tcp: c.tcp[t].String(), sdp: c.sdp[t].String()})
			}
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.test.String(), b.test.String()) })
	}
	if len(rows) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "test\tTCP\tSDP\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.test, r.tcp, r.sdp, r.note)
	}
	table.Flush()
}
