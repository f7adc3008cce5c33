package wiredoc

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Row is a row of a table: its cells, by the titles of their columns.
type Row map[string]string

// Number returns a cell that is a number, decimal or with 0x.
func (r Row) Number(t testing.TB, column string) int {
	t.Helper()
	n, err := strconv.ParseInt(r[column], 0, 0)
	if err != nil {
		t.Fatalf("row %q: column %q is no number", r, column)
	}
	return int(n)
}

// Bits returns the first and the last bit that a cell such as "32–55" names.
func (r Row) Bits(t testing.TB, column string) (first, last int) {
	t.Helper()
	from, to, ok := strings.Cut(r[column], "–")
	first, err := strconv.Atoi(from)
	if last = first; err == nil && ok {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first > last {
		t.Fatalf("row %q: column %q names no bits", r, column)
	}
	return first, last
}

// Table returns the rows of the first table with the column below a heading. The heading
// is given without its number. A line of text that ends with a colon and begins with the
// name of a layout is a heading too: "HelloAck" finds "HelloAck, 32 bytes:".
func Table(t testing.TB, heading, column string) []Row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "sdp", "PROTOCOL.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := find(string(text), heading, column)
	if len(rows) == 0 {
		t.Fatalf("sdp/PROTOCOL.md has no table with a column %q below %q", column, heading)
	}
	return rows
}

// find is Table for a text.
func find(text, heading, column string) (rows []Row) {
	name := regexp.QuoteMeta(heading)
	begins := regexp.MustCompile(`^(#+ ([0-9]+\. )?` + name + `|(A |An )?` + name + `\b.*:)$`)
	below, inside := false, false // inside any table
	var titles []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		cells := cells(line)
		switch {
		case begins.MatchString(line):
			below = true
		case !below:
		case titles == nil && !inside && slices.Contains(cells, column):
			titles = cells
		case titles == nil && strings.HasPrefix(line, "#"):
			return nil // another section
		case titles == nil || strings.HasPrefix(line, "|--"):
		case cells == nil:
			return rows
		default:
			row := Row{}
			for i, title := range titles[:min(len(titles), len(cells))] {
				row[title] = cells[i]
			}
			rows = append(rows, row)
		}
		inside = cells != nil
	}
	return rows
}

// cells returns the cells of a line of a table, or nil if it is no such line.
func cells(line string) []string {
	line, ok := strings.CutPrefix(line, "|")
	line, end := strings.CutSuffix(line, "|")
	if !ok || !end {
		return nil
	}
	all := strings.Split(line, "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// root returns the folder of the module's go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	t.Fatalf("no go.mod above the test: %v", err)
	return ""
}
