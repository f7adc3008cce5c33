package wiredoc

import (
	"encoding/hex"
	"errors"
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

// pages returns the texts of the protocol's pages, by their paths.
func pages(t testing.TB) map[string]string {
	t.Helper()
	dir := root(t)
	paths, err := filepath.Glob(filepath.Join(dir, "docs", "protocol", "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("docs/protocol has no pages: %v", err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, filepath.Join(dir, "sdp", "PROTOCOL.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// Table returns the rows of the first table with the column below a heading, which one page alone
// has. A line of text that ends with a colon and begins with the name of a layout is a heading too:
// "HelloAck" finds "HelloAck, 32 bytes:".
func Table(t testing.TB, heading, column string) (rows []Row) {
	t.Helper()
	for path, text := range pages(t) {
		found := find(text, heading, column)
		if found != nil && rows != nil {
			t.Fatalf("%s is not the only page with a table with a column %q below %q", path, column, heading)
		}
		rows = append(rows, found...)
	}
	if rows == nil {
		t.Fatalf("the protocol has no table with a column %q below %q", column, heading)
	}
	return rows
}

// Vector returns an example from the protocol's pages: its values as they are written there, and its bytes.
func Vector(t testing.TB, name string) (values string, wire []byte) {
	t.Helper()
	for path, text := range pages(t) {
		v, b, err := vector(text, name)
		if err != nil {
			t.Fatalf("%s: vector %s: %v", path, name, err)
		}
		if b != nil && wire != nil {
			t.Fatalf("%s is not the only page with a vector %s", path, name)
		}
		if b != nil {
			values, wire = v, b
		}
	}
	if wire == nil {
		t.Fatalf("the protocol has no vector %s", name)
	}
	return values, wire
}

// vector is Vector for a text. Values are the lines with an equals sign; the other lines are bytes.
func vector(text, name string) (values string, wire []byte, err error) {
	_, block, found := strings.Cut(text, "\n```vector "+name+"\n")
	block, again, closed := strings.Cut(block, "\n```")
	switch {
	case !found:
		return "", nil, nil
	case !closed || strings.Contains(again, "\n```vector "+name+"\n"):
		return "", nil, errors.New("it has no end, or is there twice")
	}
	var lines []string
	for line := range strings.Lines(block + "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "=") {
			lines = append(lines, line)
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			return "", nil, err
		}
		wire = append(wire, b...)
	}
	if len(lines) == 0 || len(wire) == 0 {
		return "", nil, errors.New("it has no values or no bytes")
	}
	return strings.Join(lines, " "), wire, nil
}

// find is Table for a text.
func find(text, heading, column string) (rows []Row) {
	name := regexp.QuoteMeta(heading)
	begins := regexp.MustCompile(`^(#+ ` + name + `|(A |An )?` + name + `\b.*:)$`)
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

// Little returns the little-endian number that the bytes are, at most 8.
func Little(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}
